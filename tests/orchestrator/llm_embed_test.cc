#include <gtest/gtest.h>

#include "core/error.h"
#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

using Vector = std::vector<float>;

LlmOptions embedding_options(const std::string& pooling = "auto") {
  LlmOptions options = tiny_options("qwen3-embedding-bf16");
  options.engine.pooling = pooling;
  return options;
}

std::shared_ptr<Generation> begin_embedding(Llm& llm, std::vector<int32_t> ids) {
  GenerationRequest request;
  request.prompt = std::move(ids);
  request.embed = true;
  return llm.submit(std::move(request));
}

Vector end_embedding(Generation& generation) {
  while (!generation.done()) generation.wait(std::chrono::seconds(60));
  const std::vector<ChoiceDelta> deltas = generation.take();
  EXPECT_EQ(deltas.size(), 1u);
  if (deltas.empty()) return {};
  EXPECT_EQ(deltas[0].finish, FinishReason::stop) << generation.summary().error;
  EXPECT_TRUE(deltas[0].token_ids.empty());
  return deltas[0].embedding;
}

Vector embedding(Llm& llm, std::vector<int32_t> ids) { return end_embedding(*begin_embedding(llm, std::move(ids))); }

TEST(LlmEmbed, TheSameAloneAndInACrowd) {
  for (const char* pooling : {"last", "mean"}) {
    std::vector<std::vector<int32_t>> prompts;
    for (uint32_t i = 0; i < 24; ++i) prompts.push_back(random_ids(1 + 4 * i % 90, 151, i));
    prompts[7] = prompts[20];  // a prefix that is in the cache
    prompts[9] = std::vector<int32_t>(prompts[20].begin(), prompts[20].begin() + 40);
    std::vector<Vector> alone;
    {
      Llm llm(Engine::load(embedding_options(pooling).engine), nullptr, embedding_options(pooling));
      for (const auto& prompt : prompts) alone.push_back(embedding(llm, prompt));
      expect_clean(llm);
    }
    // So little cache that some are preempted, so few rows that most are cut.
    LlmOptions options = embedding_options(pooling);
    options.engine.kv_blocks = 14;
    options.engine.max_step_tokens = 24;
    Llm llm(Engine::load(options.engine), nullptr, options);
    std::vector<std::shared_ptr<Generation>> running;
    for (const auto& prompt : prompts) running.push_back(begin_embedding(llm, prompt));
    for (size_t i = 0; i < running.size(); ++i) EXPECT_EQ(end_embedding(*running[i]), alone[i]) << pooling << ", " << i;
    expect_clean(llm);
  }
}

TEST(LlmEmbed, ManyTokensComeFromTheCacheOnlyWhereThatIsRight) {
  const std::vector<int32_t> prompt = random_ids(80, 151, 1);
  for (const auto& [pooling, cached] : {std::pair("last", 72), std::pair("mean", 0)}) {
    Llm llm(Engine::load(embedding_options(pooling).engine), nullptr, embedding_options(pooling));
    const Vector first = embedding(llm, prompt);
    const auto again = begin_embedding(llm, prompt);
    EXPECT_EQ(end_embedding(*again), first);
    EXPECT_EQ(again->summary().cached_tokens, cached) << pooling;
  }
}

TEST(LlmEmbed, WhatAModelIsNotMadeForIsDeclined) {
  const LlmOptions plain = tiny_options("qwen3-bf16");
  Llm generative(Engine::load(plain.engine), nullptr, plain);
  EXPECT_THROW(begin_embedding(generative, {1, 2}), Error);
  Llm embedder(Engine::load(embedding_options().engine), nullptr, embedding_options());
  EXPECT_THROW(embedder.submit(greedy({1, 2}, 3)), Error) << "it has no head";
}

// Texts and vectors of one model, in the same steps.
TEST(LlmEmbed, BesideGeneration) {
  LlmOptions options = tiny_options("qwen3-bf16");
  options.engine.embeddings = true;
  options.engine.pooling = "mean";
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = random_ids(30, 151, 4), other = random_ids(50, 151, 5);
  const std::vector<int32_t> text = answer(llm, greedy(prompt, 20))[0].token_ids;
  const Vector vector = embedding(llm, other);
  for (int round = 0; round < 3; ++round) {
    const auto generation = llm.submit(greedy(prompt, 20));
    const auto pooled = begin_embedding(llm, other);
    EXPECT_EQ(end_embedding(*pooled), vector);
    EXPECT_EQ(collect(*generation)[0].token_ids, text);
  }
  expect_clean(llm);
}

}  // namespace
}  // namespace ingot::testing
