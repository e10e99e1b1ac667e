// Programs that drivers of one process share.
#include "compiler/remembered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "compiler/driver.h"
#include "harness.h"

namespace softmetal_test {
namespace {

using softmetal::CompileError;
using softmetal::Driver;
using softmetal::Program;
using softmetal::RememberedPrograms;

Program named(const std::string& source) {
  Program program;
  program.source = source;
  return program;
}

std::string kernel_named(const std::string& name) {
  return std::string(kPrologue) + "kernel void " + name + "(device float* x [[buffer(0)]]) { x[0] = 1; }\n";
}

TEST(RememberedPrograms, ForgetWhatNobodyAskedForTheLongest) {
  RememberedPrograms programs(2);
  const auto a = programs.add("clang", "a", named("a"));
  const auto b = programs.add("clang", "b", named("b"));
  EXPECT_EQ(programs.find("clang", "a"), a);
  const auto c = programs.add("clang", "c", named("c"));
  EXPECT_EQ(programs.find("clang", "b"), nullptr);
  EXPECT_EQ(programs.find("clang", "a"), a);
  EXPECT_EQ(programs.find("clang", "c"), c);
  EXPECT_EQ(b->source, "b");  // whoever holds it keeps it
}

TEST(RememberedPrograms, AreKnownByTextAndCompiler) {
  RememberedPrograms programs(4);
  const auto old = programs.add("clang 18", "a", named("old"));
  EXPECT_EQ(programs.find("clang 19", "a"), nullptr);
  EXPECT_EQ(programs.find("clang 18", "b"), nullptr);
  const auto made = programs.add("clang 19", "a", named("new"));
  EXPECT_EQ(programs.find("clang 18", "a"), old);
  EXPECT_EQ(programs.find("clang 19", "a"), made);
  // Two threads made the same: there is one of it afterwards.
  EXPECT_EQ(programs.add("clang 19", "a", named("again")), made);
}

TEST(RememberedPrograms, ThreadsShareThem) {
  RememberedPrograms programs(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&programs] {
      for (int i = 0; i < 1000; ++i) {
        const std::string text(1, static_cast<char>('a' + i % 3));
        auto program = programs.find("clang", text);
        if (!program) program = programs.add("clang", text, named(text));
        ASSERT_EQ(program->source, text);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

class RememberedByDrivers : public testing::Test {
 protected:
  Driver driver(const std::string& name) {
    softmetal::Options options = softmetal::options_from_environment();
    options.cache = (folder / name).string();
    return Driver(options);
  }
  ~RememberedByDrivers() override { std::filesystem::remove_all(folder); }

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("softmetal-remembered-" + std::to_string(getpid()));
};

TEST_F(RememberedByDrivers, OneProgramForAllOfOneCache) {
  const Driver first = driver("a"), second = driver("a"), elsewhere = driver("b");
  const std::string source = kernel_named("shared");
  const auto program = first.compile(source, {});
  ASSERT_NE(program->find("shared"), nullptr);
  EXPECT_EQ(second.compile(source, {}), program);
  EXPECT_NE(second.compile(kernel_named("other"), {}), program);
  // Every cache keeps its own word that clang has seen the program.
  EXPECT_NE(elsewhere.compile(source, {}), program);
  bool checked = false;
  for (const auto& file : std::filesystem::directory_iterator(folder / "b"))
    checked |= file.path().filename().string().starts_with("checked-");
  EXPECT_TRUE(checked);
}

TEST_F(RememberedByDrivers, WhatIsRefusedIsRefusedAgain) {
  const Driver first = driver("a"), second = driver("a");
  const std::string source = std::string(kPrologue) + "kernel void broken() { int x = nowhere; }\n";
  EXPECT_THROW(first.compile(source, {}), CompileError);
  EXPECT_THROW(second.compile(source, {}), CompileError);
}

}  // namespace
}  // namespace softmetal_test
