// Takes every kernel that a model asks for to PTX, where there is no GPU to run them; with ptxas at hand also to
// machine code, to see that nothing that should be in registers is in memory.
#include <gtest/gtest.h>
#include <softmetal/cuda.h>
#include <softmetal/softmetal.h>

#include <filesystem>
#include <fstream>

#include "engine/sequences.h"

namespace ingot::testing {
namespace {

// Loads a model on a device that only compiles; none of its kernels may keep in memory what should be in registers.
void check(EngineOptions engine, size_t least) {
  softmetal::Options options = softmetal::options_from_environment();
  options.compile_only = true;
  softmetal::set_options(options);
  engine.device = "cuda";
  engine.max_model_len = 128;
  engine.kv_blocks = 16;
  engine.max_step_tokens = 64;
  Engine::load(engine);
  const std::vector<softmetal::Compiled> compiled = softmetal::take_compiled();
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

class CudaCompile : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaCompile, EveryKernelOfAModelAndNoSpills) {
  EngineOptions engine;
  engine.model = fixture_model("llama-bf16-llama3");
  engine.kv_dtype = GetParam();
  engine.max_seqs = 64;
  check(engine, 30);
}

// One layer of a model with no weights, by what distinguishes it.
void check_dummy(const char* name, const std::string& sizes, EngineOptions engine, std::vector<const char*> dtypes,
                 size_t least) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_act": "silu", "max_position_embeddings": 2048, "num_hidden_layers": 1, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1,
    "eos_token_id": 2, )" + sizes + "}";
  engine.model = folder;
  engine.load_format = "dummy";
  for (const char* dtype : dtypes) {
    engine.dtype = dtype;
    check(engine, least);
  }
  std::filesystem::remove_all(folder);
}

// Columns that suit blocks of 256, so that quantized weights take the matrix unit.
TEST(CudaCompileWeights, QuantizedOnesDoNotSpill) {
  EngineOptions engine;
  engine.max_seqs = 8;
  check_dummy("ingot-cuda-quantized", R"("hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096)",
              engine, {"q4_k", "q8_0"}, 15);
}

// Outputs and columns that suit the cuts of many rows, which hold as much in registers as there is.
TEST(CudaCompileWeights, ManyRowsDoNotSpill) {
  EngineOptions engine;
  engine.max_seqs = 64;
  check_dummy("ingot-cuda-rows", R"("hidden_size": 5120, "intermediate_size": 16384, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 16384)",
              engine, {"bf16"}, 30);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, CudaCompile, ::testing::Values("f16", "int8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ingot::testing
