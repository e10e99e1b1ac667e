// Takes every kernel that a model asks for to PTX, where there is no GPU to run them; with ptxas at hand also to
// machine code, to see that nothing that should be in registers is in memory.
#include <gtest/gtest.h>
#include <softmetal/cuda.h>
#include <softmetal/softmetal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/sequences.h"

namespace ingot::testing {
namespace {

// Loads a model on a device that only compiles; none of its kernels may keep in memory what should be in registers.
void check(EngineOptions engine, size_t least) {
  softmetal::Options options = softmetal::options_from_environment();
  options.compile_only = true;
  softmetal::set_options(options);
  engine.device = "cuda";
  Engine::load(engine);
  const std::vector<softmetal::Compiled> compiled = softmetal::take_compiled();
  softmetal::set_options(softmetal::options_from_environment());
  EXPECT_GE(compiled.size(), least);
  size_t reported = 0;
  for (const softmetal::Compiled& kernel : compiled) {
    if (kernel.report.empty()) continue;
    ++reported;
    EXPECT_NE(kernel.report.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << kernel.kernel << " " << kernel.constants << "\n"
        << kernel.report;
  }
  if (reported == 0)
    GTEST_SKIP() << "all compile; no ptxas to look for spills with: run scripts/fetch_ptxas.sh, or set SOFTMETAL_PTXAS";
}

class CudaCompile : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaCompile, EveryKernelOfAModelAndNoSpills) {
  EngineOptions engine;
  engine.model = fixture_model("llama-bf16-llama3");
  engine.kv_dtype = GetParam();
  engine.max_seqs = soak() ? 64 : 2;
  engine.max_model_len = 128;
  engine.kv_blocks = 16;
  engine.max_step_tokens = soak() ? 64 : 4;
  check(engine, soak() ? 30 : 15);
}

// Two layers of a real model with no weights: the last one's products see no prefill rows. Sequences are long enough
// for every cut of decode attention.
void check_shape(const std::string& name, const std::string& dtype, int32_t max_seqs, size_t least) {
  std::ifstream file(fixture_config(name) + "/config.json");
  auto config = nlohmann::json::parse(file);
  config["num_hidden_layers"] = 2;
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("ingot-cuda-" + name + dtype);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  EngineOptions engine;
  engine.model = folder;
  engine.load_format = "dummy";
  engine.dtype = dtype;
  engine.max_seqs = max_seqs;
  engine.max_model_len = 2048;
  engine.kv_blocks = 128;
  engine.max_step_tokens = 64;
  check(engine, least);
  std::filesystem::remove_all(folder);
}

// All sizes of a step, of every kind of shape: minutes.
#define INGOT_SKIP_SHORT_FORM \
  if (!soak()) GTEST_SKIP() << "set INGOT_SOAK=1 to run it: compiles for minutes"
TEST(CudaCompileEverySize, SixteenBits) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Devstral-Small-2507", "bf16", 64, 35);
}
TEST(CudaCompileEverySize, EightBits) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Devstral-Small-2507", "q8_0", 16, 20);
}
TEST(CudaCompileEverySize, FourBits) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Devstral-Small-2507", "q4_k", 16, 20);
}
TEST(CudaCompileEverySize, Experts) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Qwen3-30B-A3B", "bf16", 16, 20);
}
TEST(CudaCompileEverySize, SmallHeads) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Qwen2-0.5B", "bf16", 16, 20);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, CudaCompile, ::testing::ValuesIn(with_soak<std::string>({"f16"}, {"int8"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::testing
