// The same sequence gives the same bits, whatever shares its batch and however it is cut: the promise of the contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

void expect_same_bits(const Logits& expected, const Logits& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t r = 0; r < expected.size(); ++r)
    ASSERT_EQ(std::memcmp(expected[r].data(), got[r].data(), expected[r].size() * sizeof(float)), 0)
        << what << ": row " << r << " differs by " << max_difference({expected[r]}, {got[r]});
}

// What is run: [device/]model[:type of the KV cache]. The CPU where no device is named.
struct Case {
  std::string device = "cpu", model, kv_dtype = "f16";

  explicit Case(std::string text) {
    if (const size_t slash = text.find('/'); slash != std::string::npos) {
      device = text.substr(0, slash);
      text = text.substr(slash + 1);
    }
    const size_t colon = text.find(':');
    model = text.substr(0, colon);
    if (colon != std::string::npos) kv_dtype = text.substr(colon + 1);
  }
};

class Invariance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    INGOT_SKIP_WITHOUT_CUDA(case_.device);
    if (case_.device == "metal") test::metal_in_asked_mode();
  }
  std::string model() const { return case_.model == "default" ? default_model() : fixture_model(case_.model); }
  bool cpu() const { return case_.device == "cpu"; }
  int64_t most_positions() const { return case_.model.starts_with("gpt2") ? 64 : 256; }
  // Of the software device each size of a step is a kernel to compile.
  bool small() const { return case_.device == "metal" && !soak(); }

  EngineOptions options(int threads, int64_t block_size) const {
    EngineOptions options;
    options.kv_dtype = case_.kv_dtype;
    options.model = model();
    options.device = case_.device;
    options.threads = threads;
    options.block_size = block_size;
    options.max_model_len = most_positions();
    options.max_seqs = small() ? 3 : 16;
    options.kv_blocks = 16 * 256 / block_size;
    options.max_step_tokens = small() ? 20 : 512;
    options.max_logits_rows = 128;
    return options;
  }

  const Case case_{GetParam()};
};

TEST_P(Invariance, AloneCrowdedChunkedShuffled) {
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  const std::unique_ptr<Engine> engine = Engine::load(options(2, 16));
  const bool large = case_.model == "default" && !soak();
  const auto seqs = static_cast<uint32_t>(engine->limits().max_seqs);
  const size_t length = small() ? 26 : large ? 40 : std::min<int64_t>(70, most_positions());
  const std::vector<int64_t> chunks = large        ? std::vector<int64_t>{7}
                                      : small()    ? std::vector<int64_t>{1, 7}
                                      : kSanitized ? std::vector<int64_t>{7, 64}
                                                   : std::vector<int64_t>{1, 7, 64};
  const std::vector<int32_t> ids = random_ids(length, engine->limits().vocab, 7);
  const Logits alone = run_alone(*engine, ids);

  for (int64_t chunk : chunks) {
    Sequence sequence{ids, assign_blocks(engine->limits(), 1, most_positions(), 11)[0], chunk};
    expect_same_bits(alone, run_sequences(*engine, {sequence})[0], "in chunks of " + std::to_string(chunk));
  }
  for (int64_t chunk : small() ? std::vector<int64_t>{7} : chunks) {
    // Neighbours: decoding, prefilling in odd chunks, and of all lengths.
    const auto blocks = assign_blocks(engine->limits(), seqs, most_positions(), 23);
    std::vector<Sequence> crowd;
    for (uint32_t s = 0; s < seqs; ++s) {
      const size_t others = std::min<int64_t>(3 + s * (large ? 2 : 5), most_positions());
      Sequence neighbour{random_ids(others, engine->limits().vocab, 100 + s), blocks[s], s % 3 == 0 ? 1 : 1 + s * 2,
                         false};
      crowd.push_back(neighbour);
    }
    const uint32_t own = std::min(5u, seqs - 2);
    crowd[own] = {ids, blocks[own], chunk, true};
    expect_same_bits(alone, run_sequences(*engine, crowd)[own],
                     "among neighbours, in chunks of " + std::to_string(chunk));
  }
}

// A prefix found in the cache, and one computed anew after its blocks were given away, are the prefix.
TEST_P(Invariance, CachedAndRecomputed) {
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  const std::unique_ptr<Engine> engine = Engine::load(options(2, 16));
  const std::vector<int32_t> ids = random_ids(60, engine->limits().vocab, 31);
  const auto blocks = assign_blocks(engine->limits(), 3, 64, 5);
  const Logits alone = run_sequences(*engine, {{ids, blocks[0]}})[0];

  // Another sequence takes the first two blocks over and computes the rest into its own.
  Sequence cached{ids, blocks[1]};
  cached.blocks[0] = blocks[0][0];
  cached.blocks[1] = blocks[0][1];
  cached.start = 32;
  expect_same_bits({alone.begin() + 32, alone.end()}, run_sequences(*engine, {cached})[0], "with a cached prefix");

  // The same of text that was generated: row by row.
  run_sequences(*engine, {{ids, blocks[0], 1, false}});
  expect_same_bits({alone.begin() + 32, alone.end()}, run_sequences(*engine, {cached})[0], "behind generated text");

  // Preempted: the blocks serve somebody else, then the sequence is computed again, elsewhere, in other chunks.
  run_sequences(*engine, {{random_ids(60, engine->limits().vocab, 32), blocks[0], 9, false}});
  expect_same_bits(alone, run_sequences(*engine, {{ids, blocks[2], 25}})[0], "after a preemption");
}

TEST_P(Invariance, ThreadsDoNotMatter) {
  if (!cpu()) GTEST_SKIP() << "the CPU's threads";
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  Logits first;
  for (int threads : {1, 2, 3}) {
    const std::unique_ptr<Engine> engine = Engine::load(options(threads, 16));
    const Logits logits = run_alone(*engine, random_ids(40, engine->limits().vocab, 9));
    if (first.empty()) first = logits;
    expect_same_bits(first, logits, std::to_string(threads) + " threads");
  }
}

TEST_P(Invariance, BlockSizeDoesNotMatter) {
  if (small()) GTEST_SKIP() << "INGOT_SOAK=1";
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  Logits first;
  for (int64_t block_size : {8, 16, 32}) {
    const std::unique_ptr<Engine> engine = Engine::load(options(2, block_size));
    const Logits logits = run_alone(*engine, random_ids(40, engine->limits().vocab, 9));
    if (first.empty()) first = logits;
    expect_same_bits(first, logits, "blocks of " + std::to_string(block_size));
  }
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-' || c == ':' || c == '/') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         ::testing::ValuesIn(with_soak<std::string>(unless_sanitized<std::string>({"default"}, {}),
                                                                    {"default:int8"})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(TinyModels, Invariance,
                         ::testing::ValuesIn(unless_sanitized<std::string>(
                             {"llama-bf16-llama3", "llama-f16-yarn", "gguf-q8_0-llama3", "mistral-bf16-window",
                              "qwen3moe-bf16", "qwen3moe-gguf-q8_0", "gemma3-bf16", "llama-bf16-llama3:int8",
                              "mistral-bf16-window:int8", "gemma3-bf16:int8"},
                             {"llama-f16-yarn", "qwen3moe-gguf-q8_0", "gemma3-bf16", "mistral-bf16-window:int8"})),
                         case_name);

// The Metal device: every family, and every format of weights and of the cache.
const std::vector<std::string> kGpuModels = {"llama-bf16-wide",
                                             "qwen3-wide-gguf-q4_k_m",
                                             "qwen3moe-gguf-q8_0",
                                             "gemma3-bf16:int8",
                                             "llama-f16-yarn",
                                             "gguf-q4_0-llama3",
                                             "mistral-bf16-window",
                                             "qwen3moe-bf16",
                                             "qwen3moe-mlx-4bit",
                                             "gemma3-f16",
                                             "gpt2-bf16",
                                             "gpt2-f16",
                                             "granite-bf16",
                                             "qwen2-bf16",
                                             "qwen2-gptq-g32-asym",
                                             "smollm3-f16",
                                             "qwen3-wide-gguf-q2_k",
                                             "qwen3-wide-gguf-q3_k_m",
                                             "qwen3-wide-gguf-q4_1",
                                             "qwen3-wide-gguf-q5_0",
                                             "qwen3-wide-gguf-q5_1",
                                             "qwen3-wide-gguf-q5_k_m",
                                             "qwen3-wide-gguf-q6_k",
                                             "llama-awq-g64",
                                             "llama-mlx-8bit",
                                             "llama-bf16-llama3:int8",
                                             "mistral-bf16-window:int8"};
std::vector<std::string> on(const std::string& device, std::vector<std::string> models) {
  for (std::string& model : models) model = device + "/" + model;
  return models;
}
INSTANTIATE_TEST_SUITE_P(
    Metal, Invariance,
    ::testing::ValuesIn(on("metal",
                           soak() ? kGpuModels
                                  : unless_sanitized<std::string>({kGpuModels.begin(), kGpuModels.begin() + 2}, {}))),
    case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Invariance, ::testing::ValuesIn(on("cuda", kGpuModels)), case_name);

}  // namespace
}  // namespace ingot::testing
