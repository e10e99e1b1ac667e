// Ranks that share a model give the bits of one that has it alone: every family, format and way of cutting.
#include "engine/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "engine/devices.h"
#include "engine/loader.h"
#include "engine/rank_rig.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

using ::testing::HasSubstr;

class Ranks : public ::testing::TestWithParam<std::string> {};

TEST_P(Ranks, HaveTheBitsOfOne) {
  for (const char* isa : unless_sanitized<const char*>({"", "portable"}, {""})) {
    EngineOptions options = rank_options(fixture_model(GetParam()));
    options.isa = isa;
    const Logits alone = rank_logits(*Engine::load(options));
    int cut = 0;
    for (const int ranks : {2, 4}) {
      try {
        with_ranks(options, ranks, [&](Engine& engine) {
          SCOPED_TRACE(ranks);
          expect_equal(alone, rank_logits(engine));
          cut = ranks;
        });
      } catch (const Error& error) {
        EXPECT_EQ(ranks, 4) << error.what();  // some of these have three heads
        EXPECT_THAT(error.what(), HasSubstr("cannot be cut for so many ranks"));
      }
    }
    EXPECT_GE(cut, 2) << "nothing was compared";
  }
}

const std::vector<std::string> kSharedModels = {
    "llama-f16-untied-sharded",
    "llama-bf16-bias",
    "gguf-q4_0-llama3",
    "gguf-q8_0-llama3",
    "mistral-bf16-window",
    "qwen2-bf16",
    "qwen2-gguf-f16",
    "qwen3-gguf-bf16",
    "qwen3moe-f16",
    "qwen3moe-gguf-bf16",
    "qwen3moe-gguf-q8_0",
    "qwen3moe-sparse-bf16",
    "gpt2-bf16",
    "gpt2-gguf-f16",
    "gemma3-f16",
    "gemma3-gguf-bf16",
    "granite-gguf-f16",
    "smollm3-bf16",
    "smollm3-gguf-f16",
    "qwen3-wide-gguf-q4_1",
    "llama-gptq-act",
    "llama-mlx-mixed",
    "qwen3moe-mlx-4bit",
};
const std::vector<std::string> kSharedWithASanitizer = {
    "llama-f16-untied-sharded", "qwen3moe-gguf-q8_0", "gpt2-bf16", "qwen2-gguf-f16", "llama-gptq-act",
};
INSTANTIATE_TEST_SUITE_P(Models, Ranks, ::testing::ValuesIn(unless_sanitized(kSharedModels, kSharedWithASanitizer)),
                         test_name);

// The same on the Metal device, whose ranks meet in mailboxes: heads that do not divide, experts, blocks, a window.
class RanksOnMetal : public ::testing::TestWithParam<std::string> {};

TEST_P(RanksOnMetal, HaveTheBitsOfOne) {
  EngineOptions options = rank_options(fixture_model(GetParam()), "metal");
  options.max_step_tokens = options.max_logits_rows = 4;
  const auto logits = [](Engine& engine) { return run_as_served(engine, random_ids(7, engine.limits().vocab, 5), 2); };
  const Logits alone = logits(*Engine::load(options));
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    with_ranks(options, ranks, [&](Engine& engine) { expect_equal(alone, logits(engine)); });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RanksOnMetal,
                         ::testing::ValuesIn(unless_sanitized<std::string>({"llama-f16-untied-sharded", "qwen3moe-f16",
                                                                            "llama-mlx-mixed", "mistral-bf16-window"},
                                                                           {"qwen3moe-f16"})),
                         test_name);

// Blocks of 256, in a model that has several of them in a row.
TEST(RanksOfSuperBlocks, HaveTheBitsOfOne) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "ingot-ranks-of-super-blocks";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 1280,
             "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
             "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
  EngineOptions options = rank_options(folder.string());
  options.load_format = "dummy";
  for (const char* dtype : unless_sanitized<const char*>({"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}, {"q4_k"})) {
    SCOPED_TRACE(dtype);
    options.dtype = dtype;
    const Logits alone = rank_logits(*Engine::load(options));
    for (const int ranks : {2, 4})
      with_ranks(options, ranks, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
  }
}

// 9 heads and 3 KV heads, as the default model has them: two ranks have the KV head in the middle. Heads of 64 numbers
// and others are different kernels on the GPU.
TEST(RanksOfUnevenHeads, HaveTheBitsOfOneOnMetal) {
  for (const int head_size : unless_sanitized<int>({16, 64}, {16})) {
    SCOPED_TRACE(head_size);
    const std::filesystem::path folder =
        std::filesystem::path(::testing::TempDir()) / ("ingot-ranks-of-heads-of-" + std::to_string(head_size));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
               "num_hidden_layers": 1, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 96,
               "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "head_dim": )"
        << head_size << "}";
    EngineOptions options = rank_options(folder.string(), "metal");
    options.max_step_tokens = options.max_logits_rows = 4;
    options.load_format = "dummy";
    options.dtype = "f16";
    const auto logits = [](Engine& engine) { return run_as_served(engine, random_ids(6, 96, 5), 2); };
    const Logits alone = logits(*Engine::load(options));
    for (const int ranks : {2, 4})
      with_ranks(options, ranks, [&](Engine& engine) { expect_equal(alone, logits(engine)); });
  }
}

// 9 heads and 3 KV heads: cut at 4, and two ranks have the KV head in the middle.
TEST(RanksOfTheDefaultModel, HaveTheBitsOfOne) {
  ASSERT_FALSE(default_model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  EngineOptions options = rank_options(default_model());
  options.max_model_len = 64;
  options.max_step_tokens = 32;
  const Logits alone = rank_logits(*Engine::load(options));
  with_ranks(options, 2, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
}

// Seeded draws, each fed to the step behind it while that one is submitted already.
std::vector<int32_t> drawn(Engine& engine, StepStats& stats) {
  const std::vector<int32_t> prompt = random_ids(7, engine.limits().vocab, 77);
  const auto blocks = assign_blocks(engine.limits(), 1, 32, 0)[0];
  const SamplingParams params{.temperature = 1.2f, .repetition_penalty = 1.3f, .seed = 9};
  StepBuilder builder(engine.limits().block_size);
  builder.add(prompt, 0, blocks);
  builder.reset_sampler({.slot = 0, .prompt_ids = prompt});
  builder.sample(6, params, 0);
  StepTicket ticket = engine.submit(builder.finish());
  std::vector<int32_t> tokens;
  const int32_t from_previous = -1;
  for (int64_t i = 0; i < 12; ++i) {
    StepTicket next;
    if (i + 1 < 12) {
      builder.clear();
      builder.add({&from_previous, 1}, 7 + i, blocks);
      builder.sample(0, params, 0);
      next = engine.submit(builder.finish());
    }
    const StepResult result = engine.wait(ticket);
    tokens.push_back(result.rows[0].token);
    stats = result.stats;
    ticket = next;
  }
  return tokens;
}

class RanksOfASession : public ::testing::TestWithParam<std::string> {};

TEST_P(RanksOfASession, DrawTheSameTokensAndCountWhatTheySend) {
  EngineOptions options = rank_options(fixture_model("llama-f16-untied-sharded"), GetParam());
  options.max_step_tokens = options.max_logits_rows = 8;
  StepStats stats;
  const std::vector<int32_t> expected = drawn(*Engine::load(options), stats);
  EXPECT_EQ(stats.collectives + stats.wire_messages, 0u);
  for (const uint64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    with_ranks(options, static_cast<int>(ranks), [&](Engine& engine) {
      EXPECT_EQ(drawn(engine, stats), expected);
      const auto layers = static_cast<uint64_t>(engine.model().layers),
                 hidden = static_cast<uint64_t>(engine.model().hidden);
      // The embedding, two sums a layer, logits to rank 0, and the token drawn to the others. No sum of N ranks can do
      // with less than 2 (N - 1) / N of its bytes from each; four ranks need six messages for that, two need one.
      const uint64_t sums = 2 * layers + 1;
      EXPECT_EQ(stats.collectives, sums + 2);
      EXPECT_EQ(stats.wire_messages, sums * (ranks == 2 ? 1 : 6) + ranks - 1);
      EXPECT_EQ(stats.wire_bytes,
                sums * hidden * sizeof(float) * 2 * (ranks - 1) / ranks + (ranks - 1) * sizeof(int32_t));
      EXPECT_EQ(stats.submissions, 1u);
      EXPECT_EQ(stats.waits, 1u);
      EXPECT_EQ(stats.encode_allocations + stats.encode_waits + stats.encode_readbacks + stats.encode_compiles, 0u);
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Devices, RanksOfASession, ::testing::Values("cpu", "metal"), test_name);

TEST(RanksOfAModel, HaveTheirPartOfTheWeights) {
  for (const std::string& model : {fixture_model("qwen3-wide-gguf-q4_1"), fixture_model("qwen3moe-bf16")}) {
    EngineOptions options = rank_options(model);
    const uint64_t whole = inspect_model(options).plan.weight_bytes;
    options.tp = 2;
    for (const int rank : {0, 1}) {
      const ModelInspection share = inspect_model(options, rank);
      EXPECT_LT(static_cast<double>(share.plan.weight_bytes), 0.65 * static_cast<double>(whole)) << model;
      EXPECT_LT(share.plan.kv.kv_heads, share.config.kv_heads + 1);
    }
  }
}

TEST(RanksThatDiffer, AreToldApartBeforeAnythingIsLoaded) {
  const EngineOptions options = rank_options(fixture_model("llama-f16-untied-sharded"));
  const auto differing = [&](const std::function<void(EngineOptions&)>& change) {
    return rank_load_error(options, 2, [&](int rank, EngineOptions& own) {
      if (rank == 1) change(own);
    });
  };
  EXPECT_THAT(differing([](EngineOptions& own) { own.model = fixture_model("llama-f16-yarn"); }),
              HasSubstr("rank 1 on here has another model than rank 0 on here"));
  EXPECT_THAT(differing([](EngineOptions& own) { own.isa = "portable"; }),
              HasSubstr("rank 1 on here computes by portable"));
  EXPECT_THAT(differing([](EngineOptions& own) { own.model = "/nowhere"; }), HasSubstr("rank 1 on here: /nowhere"));
  // What rank 0 says holds on all.
  EXPECT_EQ(differing([](EngineOptions& own) { own.kv_blocks = 1, own.block_size = 32; }), "");
}

// What a test of one program cannot have: ranks of other versions, and settings of another environment.
TEST(RanksThatDiffer, AreToldApartByTheirNotes) {
  const auto said = [](const std::function<void(RankNote&)>& change) {
    const std::vector<std::shared_ptr<Group>> groups = ThreadGroup::make(2);
    std::string errors[2];
    const auto join = [&](size_t rank) {
      RankNote note{.machine = "studio-" + std::to_string(rank + 1), .version = "1.0", .settings = "blocks of 16"};
      if (rank == 1) change(note);
      try {
        agree(*groups[rank], note);
      } catch (const AgreedError& error) {
        errors[rank] = error.what();
      }
    };
    std::thread other([&] { join(1); });
    join(0);
    other.join();
    EXPECT_EQ(errors[0], errors[1]) << "all have the same error";
    return errors[0];
  };
  EXPECT_EQ(said([](RankNote&) {}), "");
  EXPECT_EQ(said([](RankNote& note) { note.version = "1.1"; }),
            "rank 1 on studio-2 is Ingot 1.1, rank 0 on studio-1 is 1.0: run the same on all");
  EXPECT_THAT(said([](RankNote& note) { note.settings = "blocks of 32"; }),
              HasSubstr("rank 1 on studio-2 has blocks of 32, rank 0 on studio-1 has blocks of 16"));
}

TEST(RanksThatDiffer, AreRefusedWhereTheyCannotBe) {
  EngineOptions options = rank_options(fixture_model("llama-f16-untied-sharded"));
  EXPECT_THAT(rank_load_error(options, 3), HasSubstr("--tp 3: a model is cut for 1, 2 or 4 ranks"));
  options.tp = 2;
  EXPECT_THROW(Engine::load(options), Error) << "there is no group";
}

}  // namespace
}  // namespace ingot::testing
