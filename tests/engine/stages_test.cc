// Stages of a model, on ranks of their own, give the bits of one that has all of it.
#include "model/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "engine/loader.h"
#include "engine/rank_rig.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

using ::testing::HasSubstr;

const Cut kCuts[] = {{1, 2}, {1, 3}, {2, 2}};

class Stages : public ::testing::TestWithParam<std::string> {};

TEST_P(Stages, HaveTheBitsOfOne) {
  const EngineOptions options = rank_options(fixture_model(GetParam()));
  const std::unique_ptr<Engine> whole = Engine::load(options);
  const Logits alone = rank_logits(*whole);
  int compared = 0;
  for (const Cut& cut : kCuts) {
    if (cut.pp > whole->model().layers) continue;
    SCOPED_TRACE("tp " + std::to_string(cut.tp) + ", pp " + std::to_string(cut.pp));
    with_ranks(options, cut, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
    ++compared;
  }
  EXPECT_GE(compared, 2) << "the model has too few layers to be cut";
}

// Two layers, and more: tied and untied, of experts, windowed, quantized.
const std::vector<std::string> kStagedModels = {
    "llama-f16-untied-sharded", "gguf-q4_0-llama3", "mistral-bf16-window", "qwen3moe-gguf-q8_0",
    "qwen3moe-sparse-bf16",     "gpt2-bf16",        "gemma3-f16",          "smollm3-gguf-f16",
};
const std::vector<std::string> kStagedWithASanitizer = {"qwen3moe-sparse-bf16", "smollm3-gguf-f16"};
INSTANTIATE_TEST_SUITE_P(Models, Stages, ::testing::ValuesIn(unless_sanitized(kStagedModels, kStagedWithASanitizer)),
                         test_name);

// The same on the Metal device, whose stages meet in mailboxes.
class StagesOnMetal : public ::testing::TestWithParam<std::string> {};

TEST_P(StagesOnMetal, HaveTheBitsOfOne) {
  EngineOptions options = rank_options(fixture_model(GetParam()), "metal");
  options.max_step_tokens = options.max_logits_rows = 4;
  const auto logits = [](Engine& engine) { return run_as_served(engine, random_ids(7, engine.limits().vocab, 5), 2); };
  const std::unique_ptr<Engine> whole = Engine::load(options);
  const Logits alone = logits(*whole);
  for (const Cut& cut : kCuts) {
    if (cut.pp > whole->model().layers) continue;
    SCOPED_TRACE("tp " + std::to_string(cut.tp) + ", pp " + std::to_string(cut.pp));
    with_ranks(options, cut, [&](Engine& engine) { expect_equal(alone, logits(engine)); });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StagesOnMetal,
                         ::testing::ValuesIn(unless_sanitized<std::string>(
                             {"qwen3moe-f16", "mistral-bf16-window", "smollm3-f16"}, {"smollm3-f16"})),
                         test_name);

TEST(StagesOfTheDefaultModel, HaveTheBitsOfOne) {
  ASSERT_FALSE(default_model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
  EngineOptions options = rank_options(default_model());
  options.max_model_len = 64;
  options.max_step_tokens = 32;
  const Logits alone = rank_logits(*Engine::load(options));
  with_ranks(options, {1, 3}, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
}

// Everything that a step can give: draws under a history, alternatives, scores, whole logits. Two sequences, whose
// steps are in flight at the same time.
struct Session {
  std::vector<int32_t> tokens;
  std::vector<float> numbers;
  StepStats stats;
};
Session run_session(Engine& engine) {
  Session session;
  const EngineLimits& limits = engine.limits();
  const auto blocks = assign_blocks(limits, 2, 32, 3);
  const SamplingParams seeded{.temperature = 1.1f, .frequency_penalty = 0.2f, .repetition_penalty = 1.3f, .seed = 9};
  std::vector<int32_t> texts[2] = {random_ids(7, limits.vocab, 77), random_ids(5, limits.vocab, 78)};
  std::deque<std::pair<int, StepTicket>> flights;
  StepBuilder builder(limits.block_size);
  const auto submit = [&](int s, size_t from) {
    builder.clear();
    const auto rows = static_cast<int32_t>(texts[s].size() - from);
    builder.add(std::span(texts[s]).subspan(from), static_cast<int64_t>(from), blocks[s]);
    if (from == 0) {
      builder.reset_sampler({.slot = s, .prompt_ids = texts[s]});
      builder.sample(0, {}, -1, {.kind = RowOutput::Kind::score, .top = 2, .target = texts[s][1]});
      builder.sample(1, {}, -1, {.kind = RowOutput::Kind::full_logits});
    }
    builder.sample(rows - 1, seeded, s, {.kind = RowOutput::Kind::logprobs, .top = s == 0 ? 3 : 0});
    flights.emplace_back(s, engine.submit(builder.finish()));
  };
  submit(0, 0);
  submit(1, 0);
  for (int i = 0; i < 16; ++i) {
    const auto [s, ticket] = flights.front();
    flights.pop_front();
    const StepResult result = engine.wait(ticket);
    for (const RowResult& row : result.rows) {
      session.numbers.insert(session.numbers.end(), row.logits.begin(), row.logits.end());
      session.numbers.push_back(row.logprob);
      for (const auto& top : row.top) session.numbers.push_back(top.logprob);
    }
    session.tokens.push_back(result.rows.back().token);
    session.stats = result.stats;
    texts[s].push_back(result.rows.back().token);
    submit(s, texts[s].size() - 1);
  }
  for (const auto& [s, ticket] : flights) engine.wait(ticket);
  return session;
}

TEST(StagesOfASession, GiveWhatOneGivesAndCountWhatTheySend) {
  EngineOptions options = rank_options(fixture_model("smollm3-bf16"));
  options.max_seqs = 2;
  const Session alone = run_session(*Engine::load(options));
  for (const Cut& cut : kCuts) {
    with_ranks(options, cut, [&](Engine& engine) {
      EXPECT_EQ(engine.limits().steps_in_flight, cut.pp + 1);
      const Session staged = run_session(engine);
      EXPECT_EQ(staged.tokens, alone.tokens);
      EXPECT_TRUE(staged.numbers == alone.numbers);
      EXPECT_EQ(staged.stats.submissions, 1u);
      EXPECT_EQ(staged.stats.waits, 1u);
      EXPECT_EQ(staged.stats.encode_allocations + staged.stats.encode_waits + staged.stats.encode_readbacks, 0u);
      if (cut.tp > 1) return;
      // One row to the next stage.
      EXPECT_EQ(staged.stats.wire_messages, 1u);
      EXPECT_EQ(staged.stats.wire_bytes, static_cast<uint64_t>(engine.model().hidden) * sizeof(float));
    });
  }
}

TEST(StagesOfASession, TakeNoTokenOfTheStepBefore) {
  const EngineOptions options = rank_options(fixture_model("llama-f16-untied-sharded"));
  with_ranks(options, {1, 2}, [](Engine& engine) {
    EXPECT_FALSE(engine.limits().chains_tokens);
    const auto blocks = assign_blocks(engine.limits(), 1, 8, 0)[0];
    StepBuilder builder(engine.limits().block_size);
    const std::vector<int32_t> prompt = {1, 2, 3};
    builder.add(prompt, 0, blocks);
    builder.sample(2, {});
    engine.run(builder.finish());
    builder.clear();
    const int32_t from_previous = -1;
    builder.add({&from_previous, 1}, 3, blocks);
    builder.sample(0, {});
    EXPECT_THROW(engine.run(builder.finish()), StepError);
  });
}

TEST(StagesOfASession, PoolWhatOnePools) {
  EngineOptions options = rank_options(fixture_model("llama-f16-untied-sharded"));
  options.pooling = "mean";
  const auto pooled = [](Engine& engine) {
    const auto blocks = assign_blocks(engine.limits(), 1, 16, 0)[0];
    const std::vector<int32_t> text = random_ids(9, engine.limits().vocab, 4);
    StepBuilder builder(engine.limits().block_size);
    std::vector<float> vector;
    for (const auto& [from, rows] : {std::pair{0, 4}, std::pair{4, 5}}) {
      builder.clear();
      builder.add(std::span(text).subspan(static_cast<size_t>(from), static_cast<size_t>(rows)), from, blocks);
      builder.pool(0);
      vector = engine.run(builder.finish()).pooled[0];
    }
    return vector;
  };
  const std::vector<float> alone = pooled(*Engine::load(options));
  with_ranks(options, {1, 2}, [&](Engine& engine) { EXPECT_TRUE(pooled(engine) == alone); });
}

// The whole of a model is on its stages together: what is embedding and head in one is with the head. GPT-2 has a table
// of positions beside it.
TEST(StagesOfAModel, HaveTheirPartOfTheWeightsAndOfTheCache) {
  for (const char* name : {"llama-f16-untied-sharded", "gguf-q4_0-llama3", "gpt2-bf16"}) {
    SCOPED_TRACE(name);
    EngineOptions options = rank_options(fixture_model(name));
    options.kv_blocks = 32;
    const MemoryPlan whole = inspect_model(options).plan;
    options.pp = 2;
    uint64_t weights = 0, cache = 0, positions = 0;
    for (const int rank : {0, 1}) {
      const ModelInspection stage = inspect_model(options, rank);
      weights += stage.plan.weight_bytes;
      cache += stage.plan.kv_bytes;
      EXPECT_LT(stage.plan.weight_bytes, whole.weight_bytes);
      EXPECT_EQ(stage.plan.kv.layers, stage.share.stage.layers.size());
      EXPECT_EQ(stage.share.embedding_in_file, rank == 0 && stage.config.tied_embeddings);
      if (stage.config.learned_positions)
        positions = static_cast<uint64_t>(stage.config.max_position * stage.config.hidden) * 2;
    }
    EXPECT_EQ(weights + positions, whole.weight_bytes);
    EXPECT_EQ(cache, whole.kv_bytes);
  }
}

// Weights that are quantized while they are loaded are in no file: then both stages have what is tied.
TEST(StagesOfAModel, HaveATiedEmbeddingTwiceWhereNoFileHasIt) {
  EngineOptions options = rank_options(fixture_model("llama-bf16-tied"));
  options.quantize = "int8";
  const Logits alone = rank_logits(*Engine::load(options));
  with_ranks(options, {1, 2}, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
  options.pp = 2;
  EXPECT_FALSE(inspect_model(options, 0).share.embedding_in_file);
}

TEST(StagesOfAModel, AreCutAsAPersonSays) {
  EngineOptions options = rank_options(fixture_model("smollm3-bf16"));
  const Logits alone = rank_logits(*Engine::load(options));
  const auto layers = static_cast<int>(inspect_model(options).config.layers);
  options.pp_layers = {layers - 1, 1};
  with_ranks(options, {1, 2}, [&](Engine& engine) { expect_equal(alone, rank_logits(engine)); });
  options.pp_layers = {layers, 1};
  EXPECT_THAT(rank_load_error(options, {1, 2}), HasSubstr("must be 2 numbers, one a stage"));
  options.pp_layers = {};
  EXPECT_THAT(rank_load_error(options, {1, layers + 1}), HasSubstr("each stage needs one"));
}

StageCosts costs_of(size_t layers, uint64_t bytes, uint64_t head = 0) {
  StageCosts costs;
  costs.layers.assign(layers, PartCost{bytes, static_cast<double>(bytes)});
  costs.last.add(head, 1);
  return costs;
}
std::vector<int64_t> sizes_of(const std::vector<Range>& stages) {
  std::vector<int64_t> sizes;
  for (const Range& layers : stages) sizes.push_back(layers.size());
  return sizes;
}

TEST(CutStages, TheSlowestTakesTheLeastTime) {
  using Sizes = std::vector<int64_t>;
  const StageHost any;
  EXPECT_EQ(sizes_of(cut_stages(costs_of(30, 100), std::vector(2, any))), (Sizes{15, 15}));
  // A head that costs six layers.
  EXPECT_EQ(sizes_of(cut_stages(costs_of(30, 100, 600), std::vector(2, any))), (Sizes{18, 12}));
  EXPECT_EQ(sizes_of(cut_stages(costs_of(3, 100), std::vector(3, any))), (Sizes{1, 1, 1}));
  // A machine that is three times as fast.
  EXPECT_EQ(sizes_of(cut_stages(costs_of(32, 100), std::vector<StageHost>{{0, 3}, {0, 1}})), (Sizes{24, 8}));
}

// An embedding takes memory and no time: where layers are left over, the first stage has fewer.
TEST(CutStages, OfCutsThatAreAsFastTheFullestMachineIsTheLeastFull) {
  using Sizes = std::vector<int64_t>;
  StageCosts costs = costs_of(32, 100, 240);
  costs.first.add(240, 0);
  const StageHost any;
  EXPECT_EQ(sizes_of(cut_stages(costs, std::vector(3, any))), (Sizes{11, 12, 9}));
  EXPECT_EQ(sizes_of(cut_stages(costs, std::vector(4, any))).back(), 6);
  EXPECT_LE(sizes_of(cut_stages(costs, std::vector(4, any))).front(), 8);
}

TEST(CutStages, EveryStageFitsItsMachine) {
  using Sizes = std::vector<int64_t>;
  StageCosts costs = costs_of(32, 100);
  costs.every_stage = 50;
  costs.first.add(200, 0);
  // 64 and 192 of 256: as fast as each other, but the first has room for six layers.
  EXPECT_EQ(sizes_of(cut_stages(costs, std::vector<StageHost>{{850, 1}, {4000, 1}})), (Sizes{6, 26}));
  EXPECT_EQ(sizes_of(cut_stages(costs, std::vector<StageHost>{{4000, 1}, {650, 1}})), (Sizes{26, 6}));
  // Nowhere: what is missing is spread.
  EXPECT_EQ(sizes_of(cut_stages(costs, std::vector<StageHost>{{1250, 1}, {1050, 1}})), (Sizes{16, 16}));
}

}  // namespace
}  // namespace ingot::testing
