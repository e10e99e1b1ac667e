// The same sequence gives the same bits, whatever shares its batch and however it is cut: the promise of the contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/sequences.h"

namespace ingot::testing {
namespace {

void expect_same_bits(const Logits& expected, const Logits& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t r = 0; r < expected.size(); ++r)
    ASSERT_EQ(std::memcmp(expected[r].data(), got[r].data(), expected[r].size() * sizeof(float)), 0)
        << what << ": row " << r << " differs by " << max_difference({expected[r]}, {got[r]});
}

EngineOptions options_for(const std::string& model, const std::string& kv_dtype, int threads, int64_t block_size) {
  EngineOptions options;
  options.kv_dtype = kv_dtype;
  options.model = model;
  options.device = "cpu";
  options.threads = threads;
  options.block_size = block_size;
  options.max_model_len = 256;
  options.max_seqs = 16;
  options.kv_blocks = 16 * 256 / block_size;
  options.max_step_tokens = 512;
  options.max_logits_rows = 128;
  return options;
}

class Invariance : public ::testing::TestWithParam<std::string> {
 protected:
  // A model, or model:type of the KV cache.
  std::string name() const { return GetParam().substr(0, GetParam().find(':')); }
  std::string model() const { return name() == "default" ? default_model() : fixture_model(name()); }
  EngineOptions options(int threads, int64_t block_size) const {
    const size_t colon = GetParam().find(':');
    return options_for(model(), colon == std::string::npos ? "f16" : GetParam().substr(colon + 1), threads, block_size);
  }
};

TEST_P(Invariance, AloneCrowdedChunkedShuffled) {
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  const std::unique_ptr<Engine> engine = Engine::load(options(2, 16));
  const bool large = name() == "default" && !soak();
  const size_t length = large ? 40 : 70;
  const std::vector<int64_t> chunks = large        ? std::vector<int64_t>{7}
                                      : kSanitized ? std::vector<int64_t>{7, 64}
                                                   : std::vector<int64_t>{1, 7, 64};
  const std::vector<int32_t> ids = random_ids(length, engine->limits().vocab, 7);
  const Logits alone = run_alone(*engine, ids);

  for (int64_t chunk : chunks) {
    Sequence sequence{ids, assign_blocks(engine->limits(), 1, 256, 11)[0], chunk};
    expect_same_bits(alone, run_sequences(*engine, {sequence})[0], "in chunks of " + std::to_string(chunk));
  }
  for (int64_t chunk : chunks) {
    // 15 neighbours: decoding, prefilling in odd chunks, and of all lengths.
    const auto blocks = assign_blocks(engine->limits(), 16, 256, 23);
    std::vector<Sequence> crowd;
    for (uint32_t s = 0; s < 16; ++s) {
      Sequence neighbour{random_ids(3 + s * (large ? 2 : 5), engine->limits().vocab, 100 + s), blocks[s],
                         s % 3 == 0 ? 1 : 1 + s * 2, false};
      crowd.push_back(neighbour);
    }
    crowd[5] = {ids, blocks[5], chunk, true};
    expect_same_bits(alone, run_sequences(*engine, crowd)[5],
                     "among 15 neighbours, in chunks of " + std::to_string(chunk));
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

  // Preempted: the blocks serve somebody else, then the sequence is computed again, elsewhere, in other chunks.
  run_sequences(*engine, {{random_ids(60, engine->limits().vocab, 32), blocks[0], 9, false}});
  expect_same_bits(alone, run_sequences(*engine, {{ids, blocks[2], 25}})[0], "after a preemption");
}

TEST_P(Invariance, ThreadsDoNotMatter) {
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
  ASSERT_FALSE(model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  Logits first;
  for (int64_t block_size : {8, 16, 32}) {
    const std::unique_ptr<Engine> engine = Engine::load(options(2, block_size));
    const Logits logits = run_alone(*engine, random_ids(40, engine->limits().vocab, 9));
    if (first.empty()) first = logits;
    expect_same_bits(first, logits, "blocks of " + std::to_string(block_size));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         ::testing::ValuesIn(with_soak<std::string>(unless_sanitized<std::string>({"default"}, {}),
                                                                    {"default:int8"})),
                         [](const auto& info) { return info.param == "default" ? "default" : "default_int8"; });
INSTANTIATE_TEST_SUITE_P(TinyModels, Invariance,
                         ::testing::ValuesIn(unless_sanitized<std::string>(
                             {"llama-bf16-llama3", "llama-f16-yarn", "gguf-q8_0-llama3", "mistral-bf16-window",
                              "qwen3moe-bf16", "qwen3moe-gguf-q8_0", "gemma3-bf16", "llama-bf16-llama3:int8",
                              "mistral-bf16-window:int8", "gemma3-bf16:int8"},
                             {"llama-f16-yarn", "qwen3moe-gguf-q8_0", "gemma3-bf16", "mistral-bf16-window:int8"})),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-' || c == ':') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace ingot::testing
