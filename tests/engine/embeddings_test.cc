// Texts as vectors: a tiny checkpoint in Qwen3-Embedding's layout against what transformers makes of it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/metal_mode.h"
#include "core/error.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

constexpr const char* kModel = "qwen3-embedding-bf16";
// Of vectors of length 1 with 48 numbers: the rounding of 16-bit activations. scripts/make_embedding_goldens.py sees to
// it that another kind of pooling is ten times as far away.
constexpr double kVectorTolerance = 0.005;

using Vector = std::vector<float>;

EngineOptions embedding_options(const std::string& device, const std::string& pooling) {
  EngineOptions options;
  options.model = fixture_model(kModel);
  options.device = device;
  options.threads = 1;
  options.max_model_len = 64;
  options.max_seqs = 4;
  options.max_step_tokens = device == "metal" && !soak() ? 4 : 64;  // each size of a step is kernels to compile
  options.kv_dtype = "f32";
  options.pooling = pooling;
  return options;
}

// The vector of a prompt in steps of at most `chunk` rows, behind a neighbour that is pooled too.
Vector embed(Engine& engine, const std::vector<int32_t>& ids, size_t chunk, int32_t slot = 1, bool neighbour = false) {
  const EngineLimits& limits = engine.limits();
  const auto blocks = assign_blocks(limits, 2, 64, 0);
  const std::vector<int32_t> others = random_ids(3, limits.vocab, 5);
  Vector vector;
  for (size_t at = 0; at < ids.size(); at += chunk) {
    StepBuilder builder(limits.block_size);
    const std::span<const int32_t> part = std::span(ids).subspan(at, std::min(chunk, ids.size() - at));
    const auto add = [&] {
      builder.add(part, static_cast<int64_t>(at), blocks[0]);
      builder.pool(slot);
    };
    if (part.size() == 1) add();  // decode rows come first
    if (neighbour) {
      builder.add(others, 0, blocks[1]);
      builder.pool(slot + 1);
    }
    if (part.size() > 1) add();
    const StepResult result = engine.run(builder.finish());
    EXPECT_EQ(result.pooled.size(), neighbour ? 2u : 1u);
    vector = result.pooled.at(neighbour && part.size() > 1 ? 1 : 0);
  }
  return vector;
}

class Embeddings : public ::testing::TestWithParam<std::string> {};

TEST_P(Embeddings, MatchTransformers) {
  const std::string device = GetParam();
  if (device == "metal") test::metal_in_strict_mode();
  std::ifstream file(fixture_model(kModel) + "/embeddings.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const char* kind : {"last", "mean", "cls"}) {
    if (device == "metal" && !soak() && std::string(kind) != "mean") continue;  // each is a kernel to compile
    const auto engine = Engine::load(embedding_options(device, kind));
    for (size_t i = 0; i < golden["prompts"].size(); ++i) {
      const Vector got = embed(*engine, golden["prompts"][i], static_cast<size_t>(engine->limits().max_step_tokens));
      const Vector want = golden[kind][i];
      ASSERT_EQ(got.size(), want.size());
      for (size_t k = 0; k < got.size(); ++k)
        ASSERT_NEAR(got[k], want[k], kVectorTolerance) << kind << " of prompt " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Embeddings, ::testing::Values("cpu"), test_name);
INSTANTIATE_TEST_SUITE_P(Metal, Embeddings, ::testing::Values("metal"), test_name);

TEST(EmbeddingModel, ItsFilesSayHow) {
  const auto engine = Engine::load(embedding_options("cpu", "auto"));
  EXPECT_EQ(engine->limits().pooling.kind, Pooling::Kind::last);
  EXPECT_TRUE(engine->limits().pooling.normalize);
  EXPECT_FALSE(engine->model().has_head);
  EXPECT_EQ(engine->model().query_prompt, "Instruct: find it\nQuery:");
}

// However it is cut, whatever it shares its steps with: the same bits.
TEST(EmbeddingModel, BitsDoNotDependOnCompany) {
  for (const char* kind : {"last", "mean", "cls"}) {
    const auto engine = Engine::load(embedding_options("cpu", kind));
    const std::vector<int32_t> ids = random_ids(37, engine->limits().vocab, 3);
    const Vector alone = embed(*engine, ids, 64);
    for (const size_t chunk : {1, 5, 36, 37}) {
      EXPECT_EQ(embed(*engine, ids, chunk), alone) << kind << " in chunks of " << chunk;
      EXPECT_EQ(embed(*engine, ids, chunk, 2, true), alone) << kind << " with a neighbour, in chunks of " << chunk;
    }
  }
}

// A step may pool one sequence and sample another: each gets what it gets alone.
TEST(EmbeddingModel, PooledAndSampledRowsShareAStep) {
  EngineOptions options = embedding_options("cpu", "mean");
  options.model = fixture_model("qwen3-bf16");
  options.max_logits_rows = 1;
  const auto engine = Engine::load(options);
  const auto blocks = assign_blocks(engine->limits(), 2, 64, 0);
  const std::vector<int32_t> a = random_ids(9, engine->limits().vocab, 1), b = random_ids(7, engine->limits().vocab, 2);
  const auto run = [&](bool pools, bool samples) {
    StepBuilder builder(engine->limits().block_size);
    if (pools) {
      builder.add(a, 0, blocks[0]);
      builder.pool(0);
    }
    if (samples) {
      const int32_t row = builder.add(b, 0, blocks[1]);
      builder.sample(row + 6, {}, -1, {.kind = RowOutput::Kind::full_logits});
    }
    return engine->run(builder.finish());
  };
  const StepResult both = run(true, true);
  EXPECT_EQ(both.pooled, run(true, false).pooled);
  EXPECT_EQ(both.rows.at(0).logits, run(false, true).rows.at(0).logits);
}

TEST(EmbeddingModel, APlainModelPoolsOnlyWhenTold) {
  EngineOptions options = embedding_options("cpu", "auto");
  options.model = fixture_model("qwen3-bf16");
  EXPECT_FALSE(Engine::load(options)->limits().pooling);
  options.embeddings = true;
  EXPECT_EQ(Engine::load(options)->limits().pooling.kind, Pooling::Kind::last);
  options.pooling = "average";
  EXPECT_THROW(Engine::load(options), Error);
}

}  // namespace
}  // namespace ingot::testing
