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
void check(EngineOptions engine, size_t least, const char* among = "", bool warpgroups = true) {
  softmetal::Options options = softmetal::options_from_environment();
  options.compile_only = true;
  options.warpgroups = warpgroups;
  if (!warpgroups) options.gemm = softmetal::Gemm::none;
  softmetal::set_options(options);
  engine.device = "cuda";
  Engine::load(engine);
  const std::vector<softmetal::Compiled> compiled = softmetal::take_compiled();
  softmetal::set_options(softmetal::options_from_environment());
  EXPECT_GE(compiled.size(), least);
  EXPECT_TRUE(std::any_of(compiled.begin(), compiled.end(),
                          [&](const softmetal::Compiled& kernel) { return kernel.kernel.starts_with(among); }))
      << "no " << among;
  size_t reported = 0;
  for (const softmetal::Compiled& kernel : compiled) {
    if (kernel.report.empty()) continue;
    ++reported;
    EXPECT_NE(kernel.report.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << kernel.kernel << " " << kernel.constants << "\n"
        << kernel.report;
    // What ptxas says of warpgroups whose products it lets run one by one, or whose registers it does not move.
    EXPECT_EQ(kernel.report.find("Potential Performance Loss"), std::string::npos)
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
  engine.max_step_tokens = 128;  // products of more than 64 rows go to warpgroups
  check(engine, least, "linear_wide_");
  std::filesystem::remove_all(folder);
}

// All the kernels of one shape, with products of `rows` rows among them.
void check_many_rows(const char* among, int32_t rows, bool warpgroups) {
  if (kSanitized) GTEST_SKIP() << "nothing here for a sanitizer to see";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / (std::string("ingot-cuda-") + among);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512, "torch_dtype": "bfloat16"})";
  EngineOptions engine;
  engine.model = folder;
  engine.load_format = "dummy";
  engine.dtype = "bf16";
  engine.max_seqs = 1;
  engine.max_model_len = rows;
  engine.kv_blocks = 16;
  engine.max_step_tokens = rows;
  check(engine, 15, among, warpgroups);
  std::filesystem::remove_all(folder);
}

// Many rows, which four simdgroups multiply together.
TEST(CudaCompileWide, NeitherSpillsNorMultipliesOneByOne) { check_many_rows("linear_wide_bfloat", 128, true); }
// On other GPUs, and without a library, tiles take them.
TEST(CudaCompileTiles, KeepTheirSumsInRegisters) { check_many_rows("linear_many_bfloat", 256, false); }

// All sizes of a step, of every kind of shape: minutes.
#define INGOT_SKIP_SHORT_FORM \
  if (!soak()) GTEST_SKIP() << "set INGOT_SOAK=1 to run it: compiles for minutes"
TEST(CudaCompileEverySize, SixteenBits) {
  INGOT_SKIP_SHORT_FORM;
  check_shape("Devstral-Small-2507", "bf16", 64, 25);
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
