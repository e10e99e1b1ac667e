// Takes every kernel that a model asks for to PTX, where there is no GPU to run them; with ptxas at hand also to
// machine code, to see that nothing that should be in registers is in memory.
#include <gtest/gtest.h>
#include <softmetal/cuda.h>
#include <softmetal/softmetal.h>

#include "engine/sequences.h"

namespace ingot::testing {
namespace {

class CudaCompile : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaCompile, EveryKernelOfAModelAndNoSpills) {
  softmetal::Options options = softmetal::options_from_environment();
  options.compile_only = true;
  softmetal::set_options(options);
  EngineOptions engine;
  engine.model = fixture_model("llama-bf16-llama3");
  engine.device = "cuda";
  engine.kv_dtype = GetParam();
  engine.max_model_len = 128;
  engine.max_seqs = 64;
  engine.kv_blocks = 16;
  engine.max_step_tokens = 64;
  Engine::load(engine);
  const std::vector<softmetal::Compiled> compiled = softmetal::take_compiled();
  EXPECT_GE(compiled.size(), 30u);
  size_t reported = 0;
  for (const softmetal::Compiled& kernel : compiled) {
    if (kernel.report.empty()) continue;
    ++reported;
    EXPECT_NE(kernel.report.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << kernel.kernel << " " << kernel.constants << "\n"
        << kernel.report;
  }
  if (reported == 0) GTEST_SKIP() << "all compile; no ptxas to look for spills with: set SOFTMETAL_PTXAS";
}

INSTANTIATE_TEST_SUITE_P(KvTypes, CudaCompile, ::testing::Values("f16", "int8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ingot::testing
