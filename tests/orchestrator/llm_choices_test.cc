// What an answer is made of: the same tokens whatever else runs, choices, scores, the prefix cache.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

std::vector<int32_t> prompt_of(Llm& llm, size_t length, uint32_t seed) {
  return random_ids(length, llm.limits().vocab, seed);
}

// Greedy continuation straight from the engine's logits, without any of the orchestrator.
std::vector<int32_t> reference_answer(const LlmOptions& options, std::vector<int32_t> ids, int64_t count) {
  const std::unique_ptr<Engine> engine = Engine::load(options.engine);
  const size_t prompt = ids.size();
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> row = run_alone(*engine, ids).back();
    ids.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  return {ids.begin() + static_cast<int64_t>(prompt), ids.end()};
}

TEST(LlmChoices, GreedyAnswerIsTheArgmaxOfTheEnginesLogits) {
  for (const bool overlap : {true, false}) {
    LlmOptions options = tiny_options();
    options.overlap = overlap;
    Llm llm(Engine::load(options.engine), nullptr, options);
    for (const size_t length : {1, 7, 8, 9, 70}) {
      const std::vector<int32_t> prompt = prompt_of(llm, length, static_cast<uint32_t>(length));
      const std::vector<Choice> choices = answer(llm, greedy(prompt, 12));
      ASSERT_EQ(choices.size(), 1u);
      EXPECT_EQ(choices[0].token_ids, reference_answer(options, prompt, 12)) << length;
      EXPECT_EQ(choices[0].finish, FinishReason::length);
    }
    expect_clean(llm);
  }
}

TEST(LlmChoices, MaxTokensIsCutToTheContext) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<Choice> choices = answer(llm, greedy(prompt_of(llm, 90, 1), 1000));
  EXPECT_EQ(choices[0].token_ids.size(), 6u);
  EXPECT_EQ(choices[0].finish, FinishReason::length);
  EXPECT_EQ(answer(llm, greedy(prompt_of(llm, 95, 1), 1000))[0].token_ids.size(), 1u);
}

// The first choice fills the block that the prompt ends in, which the prefix cache then knows, and is gone before the
// second gets a seat and writes what it draws into the same block.
TEST(LlmChoices, AChoiceThatComesLateSpoilsNoCachedBlock) {
  LlmOptions options = tiny_options();
  options.speculate = Speculation::off;
  options.engine.max_seqs = 2;
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::shared_ptr<Generation> other = llm.submit(greedy(prompt_of(llm, 20, 3), 60));
  GenerationRequest request = greedy(prompt_of(llm, 15, 4), 12);
  request.sampling.temperature = 1;
  request.n = 2;
  const std::vector<Choice> choices = answer(llm, request);
  ASSERT_NE(choices[0].token_ids[0], choices[1].token_ids[0]);
  collect(*other);
  expect_clean(llm);
  std::vector<int32_t> longer = request.prompt;
  longer.insert(longer.end(), choices[0].token_ids.begin(), choices[0].token_ids.end());
  EXPECT_EQ(answer(llm, greedy(longer, 6))[0].token_ids, reference_answer(options, longer, 6));
}

TEST(LlmChoices, EqualBeginningsAreComputedOnce) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = prompt_of(llm, 40, 5);
  const std::shared_ptr<Generation> first = llm.submit(greedy(prompt, 9));
  const std::vector<Choice> cold = collect(*first);
  EXPECT_EQ(first->summary().cached_tokens, 0);

  const std::shared_ptr<Generation> second = llm.submit(greedy(prompt, 9));
  EXPECT_EQ(collect(*second)[0].token_ids, cold[0].token_ids);
  EXPECT_EQ(second->summary().cached_tokens, 32) << "all full blocks but the one with the last token";

  // What was generated is cached as well: a conversation goes on from its last answer.
  std::vector<int32_t> longer = prompt;
  longer.insert(longer.end(), cold[0].token_ids.begin(), cold[0].token_ids.end());
  const std::shared_ptr<Generation> third = llm.submit(greedy(longer, 4));
  const std::vector<Choice> warm = collect(*third);
  EXPECT_EQ(third->summary().cached_tokens, 48);
  EXPECT_EQ(warm[0].token_ids, reference_answer(options, longer, 4));
  expect_clean(llm);
}

TEST(LlmChoices, PrefixIsSharedWithinOneStep) {
  LlmOptions options = tiny_options();
  options.engine.max_step_tokens = 96;
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = prompt_of(llm, 33, 6);
  const std::vector<int32_t> expected = reference_answer(options, prompt, 5);
  // A first request keeps the loop busy, so that the next ones are scheduled together.
  const std::shared_ptr<Generation> busy = llm.submit(greedy(prompt_of(llm, 90, 99), 6));
  std::vector<std::shared_ptr<Generation>> generations;
  for (int i = 0; i < 6; ++i) generations.push_back(llm.submit(greedy(prompt, 5)));
  for (const auto& generation : generations) EXPECT_EQ(collect(*generation)[0].token_ids, expected);
  collect(*busy);
  EXPECT_GE(llm.stats().prefix_hits, 5u * 32u);
  expect_clean(llm);
}

// A block is held, or cached, or free: never two of them.
TEST(LlmChoices, BlocksAreCountedOnce) {
  LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const int64_t size = llm.limits().block_size;
  const std::vector<int32_t> prompt = prompt_of(llm, 40, 5);
  int seen = 0;  // on the step loop, which does not go on meanwhile
  const std::shared_ptr<Generation> running = llm.submit(greedy(prompt, 60), [&] {
    const LlmStats stats = llm.stats();
    if (stats.running == 0) return;  // the last news
    EXPECT_GT(stats.blocks_used, 0);
    EXPECT_EQ(stats.blocks_cached, 0);
    ++seen;
  });
  const int64_t tokens = 40 + static_cast<int64_t>(collect(*running)[0].token_ids.size());
  EXPECT_GT(seen, 2);
  expect_clean(llm);
  EXPECT_EQ(llm.stats().blocks_cached, (tokens - 1) / size);  // the last token was never computed
}

TEST(LlmChoices, WithoutPrefixCachingNothingIsReused) {
  LlmOptions options = tiny_options();
  options.prefix_caching = false;
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = prompt_of(llm, 40, 5);
  const std::vector<Choice> cold = answer(llm, greedy(prompt, 3));
  const std::shared_ptr<Generation> again = llm.submit(greedy(prompt, 3));
  EXPECT_EQ(collect(*again)[0].token_ids, cold[0].token_ids);
  EXPECT_EQ(again->summary().cached_tokens, 0);
  EXPECT_EQ(llm.stats().blocks_cached, 0);
}

GenerationRequest sampled(std::vector<int32_t> prompt, uint64_t seed) {
  GenerationRequest request = greedy(std::move(prompt), 10);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = seed;
  return request;
}

TEST(LlmChoices, ChoicesAreWhatSingleRequestsWithTheirSeedsGive) {
  for (const bool caching : {true, false}) {
    for (const size_t length : {1, 8, 16, 17, 20}) {
      LlmOptions options = tiny_options();
      options.prefix_caching = caching;
      Llm llm(Engine::load(options.engine), nullptr, options);
      const std::vector<int32_t> prompt = prompt_of(llm, length, 8);
      GenerationRequest request = sampled(prompt, 100);
      request.n = 5;
      request.sampling.frequency_penalty = 0.3f;
      const std::vector<Choice> choices = answer(llm, request);
      ASSERT_EQ(choices.size(), 5u);
      EXPECT_NE(choices[0].token_ids, choices[1].token_ids);
      for (uint64_t i = 0; i < 5; ++i) {
        GenerationRequest single = sampled(prompt, 100 + i);
        single.sampling.frequency_penalty = 0.3f;
        EXPECT_EQ(answer(llm, single)[0].token_ids, choices[i].token_ids) << length << " choice " << i;
      }
      expect_clean(llm);
    }
  }
}

TEST(LlmChoices, ChoicesShareThePromptsBlocks) {
  LlmOptions options = tiny_options();
  options.prefix_caching = false;
  options.engine.kv_blocks = 12 + 8;  // the prompt's 11 blocks once, and a copied and a new one for each choice
  Llm llm(Engine::load(options.engine), nullptr, options);
  GenerationRequest request = sampled(prompt_of(llm, 84, 3), 1);
  request.n = 4;
  answer(llm, request);
  EXPECT_EQ(llm.stats().preemptions, 0u);
  expect_clean(llm);
}

TEST(LlmChoices, BestOfReturnsTheMostLikely) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = prompt_of(llm, 11, 8);
  GenerationRequest request = sampled(prompt, 50);
  request.best_of = 6;
  request.n = 2;
  const std::shared_ptr<Generation> generation = llm.submit(request);
  const std::vector<Choice> best = collect(*generation);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(generation->summary().completion_tokens, 60);
  std::vector<std::pair<double, std::vector<int32_t>>> all;
  for (uint64_t i = 0; i < 6; ++i) {
    GenerationRequest single = sampled(prompt, 50 + i);
    single.logprobs = 0;
    const Choice choice = answer(llm, single)[0];
    double sum = 0;
    for (const TokenScore& score : choice.scores) sum += score.logprob;
    all.emplace_back(-sum, choice.token_ids);
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(best[0].token_ids, all[0].second);
  EXPECT_EQ(best[1].token_ids, all[1].second);
  EXPECT_TRUE(best[0].scores.empty()) << "scores were not asked for";
}

TEST(LlmChoices, ScoresAreTheLogprobsOfTheEnginesLogits) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  const std::vector<int32_t> prompt = prompt_of(llm, 21, 4);
  GenerationRequest request = greedy(prompt, 5);
  request.logprobs = 3;
  request.prompt_logprobs = 2;
  const std::shared_ptr<Generation> generation = llm.submit(request);
  const Choice choice = collect(*generation)[0];
  std::vector<int32_t> ids = prompt;
  ids.insert(ids.end(), choice.token_ids.begin(), choice.token_ids.end());
  const std::unique_ptr<Engine> engine = Engine::load(options.engine);
  const Logits logits = run_alone(*engine, ids);
  std::vector<TokenScore> scores = generation->prompt_scores();
  ASSERT_EQ(scores.size(), prompt.size());
  EXPECT_EQ(scores[0].rank, 0);
  ASSERT_EQ(choice.scores.size(), 5u);
  scores.insert(scores.end(), choice.scores.begin(), choice.scores.end());
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<float>& row = logits[i - 1];
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    EXPECT_EQ(scores[i].token, ids[i]);
    EXPECT_NEAR(scores[i].logprob, row[ids[i]] - std::log(sum), 1e-4);
    EXPECT_EQ(scores[i].top.size(), i < prompt.size() ? 2u : 3u);
    const auto better = std::count_if(row.begin(), row.end(), [&](float logit) { return logit > row[ids[i]]; });
    EXPECT_EQ(scores[i].rank, better + 1);
  }
  expect_clean(llm);
}

TEST(LlmChoices, PromptScoresAloneNeedNoToken) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  GenerationRequest request = greedy(prompt_of(llm, 96, 4), 0);
  request.prompt_logprobs = 0;
  const std::shared_ptr<Generation> generation = llm.submit(request);
  const std::vector<Choice> choices = collect(*generation);
  EXPECT_TRUE(choices[0].token_ids.empty());
  EXPECT_EQ(choices[0].finish, FinishReason::length);
  EXPECT_EQ(generation->prompt_scores().size(), 96u);
  expect_clean(llm);
}

}  // namespace
}  // namespace ingot::testing
