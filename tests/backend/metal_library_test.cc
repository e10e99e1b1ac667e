// Where the Metal kernels come from: a library that was compiled ahead, if it was compiled from them, or their source.
#include "backend/metal/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "metal_mode.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;
using metal::KernelLibrary;
using metal::load_library;

constexpr const char* kFromSource = "the built-in source, compiled at start";

class MetalLibrary : public testing::Test {
 protected:
  MetalLibrary() : root_(fs::temp_directory_path() / ("ingot_metal_library_" + std::to_string(getpid()))) {
    metal_in_fast_mode();
    device_ = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  }
  ~MetalLibrary() override { fs::remove_all(root_); }

  // A library of the software device with one kernel.
  void put_library(const fs::path& place, const std::string& kernel) const {
    fs::create_directories(place.parent_path());
    std::ofstream(place) << "softmetal library 1\n[[kernel]] void " << kernel << "() {}\n";
  }
  // As a program in root_/bin, and what it says about it.
  KernelLibrary load() {
    testing::internal::CaptureStderr();
    KernelLibrary loaded = load_library(device_.get(), {.folder = root_ / "bin"});
    said_ = testing::internal::GetCapturedStderr();
    return loaded;
  }

  fs::path root_;
  const NS::SharedPtr<NS::AutoreleasePool> pool_ = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  NS::SharedPtr<MTL::Device> device_;
  std::string said_;
};

TEST_F(MetalLibrary, IsLookedForBesideTheProgramAndWhereItIsInstalled) {
  const std::vector<fs::path> expected = {"/opt/x/bin/ingot.metallib", "/opt/x/ingot.metallib",
                                          "/opt/x/lib/ingot/ingot.metallib"};
  EXPECT_EQ(metal::library_places("/opt/x/bin"), expected);
  EXPECT_TRUE(metal::library_places("").empty());
}

TEST_F(MetalLibrary, WithoutOneTheSourceIsCompiled) {
  EXPECT_EQ(load().from, kFromSource);
  EXPECT_EQ(said_, "") << "that is how it is without Xcode";
}

TEST_F(MetalLibrary, TheNearestIsTaken) {
  std::vector<fs::path> places = metal::library_places(root_ / "bin");
  std::reverse(places.begin(), places.end());
  for (const fs::path& place : places) {
    put_library(place, metal::kKernelStamp);
    const KernelLibrary loaded = load();
    EXPECT_EQ(loaded.from, place.string());
    EXPECT_EQ(loaded.library->functionNames()->count(), 1u) << "the file's, not those of the source";
    EXPECT_EQ(said_, "");
  }
  EXPECT_EQ(load_library(device_.get(), {.folder = root_ / "bin", .bfloat = false}).from, kFromSource)
      << "it has kernels that such a device cannot have";
}

// One of an earlier build, of another program, cut short: none of them is used, and the next place is looked at.
TEST_F(MetalLibrary, OfOtherKernelsIsRefused) {
  const std::vector<fs::path> places = metal::library_places(root_ / "bin");
  put_library(places[0], "ingot_source_0123456789abcdef");
  EXPECT_EQ(load().from, kFromSource);
  EXPECT_EQ(said_,
            "ingot: " + places[0].string() + ": compiled from other kernels than this program's; it is not used\n");
  std::ofstream(places[0]) << "MTLB";
  EXPECT_EQ(load().from, kFromSource);
  EXPECT_NE(said_.find(places[0].string() + ": "), std::string::npos) << said_;
  put_library(places[2], metal::kKernelStamp);
  EXPECT_EQ(load().from, places[2].string());
}

// Whoever names a folder knows what is in it.
TEST_F(MetalLibrary, OfTheResourcesIsTakenAsItIs) {
  const fs::path folder = root_ / "own", library = folder / "ingot.metallib", source = folder / "ingot.metal";
  EXPECT_THROW(load_library(device_.get(), {.resources = folder}), Error);
  fs::create_directories(folder);
  std::ofstream(source) << "kernel void mine() {}\n";
  EXPECT_EQ(load_library(device_.get(), {.resources = folder}).from, source.string() + ", compiled at start");
  put_library(library, "mine");
  EXPECT_EQ(load_library(device_.get(), {.resources = folder}).from, library.string());
}

// The whole source carries the stamp, so what is compiled from it is known again.
TEST_F(MetalLibrary, TheSourceHasItsStamp) {
  const KernelLibrary loaded = load();
  EXPECT_TRUE(
      NS::TransferPtr(loaded.library->newFunction(NS::String::string(metal::kKernelStamp, NS::UTF8StringEncoding))));
}

}  // namespace
}  // namespace ingot::test
