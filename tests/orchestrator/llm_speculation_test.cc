// Guessing changes the number of steps and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

// A text that repeats itself, so that there is much to guess and much of it is wrong.
std::vector<int32_t> repetitive_prompt(std::mt19937& random, int64_t vocab) {
  std::vector<int32_t> words;
  for (int i = 0; i < 5; ++i) words.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  std::vector<int32_t> prompt;
  const size_t length = 4 + random() % 40;
  while (prompt.size() < length) prompt.push_back(words[random() % words.size()]);
  return prompt;
}

GenerationRequest random_request(std::mt19937& random, const EngineLimits& limits) {
  const auto chance = [&random](int percent) { return static_cast<int>(random() % 100) < percent; };
  GenerationRequest request;
  request.prompt = repetitive_prompt(random, limits.vocab);
  request.max_tokens = 1 + static_cast<int64_t>(random() % 40);
  request.ignore_eos = chance(80);
  request.client = chance(50) ? "one" : "two";
  SamplingParams& p = request.sampling;
  p.seed = random();
  p.temperature = chance(30) ? 0.0f : 0.8f;
  if (chance(30)) p.top_k = 2 + static_cast<int32_t>(random() % 4);
  if (chance(30)) p.top_p = 0.8f;
  if (chance(20)) p.min_p = 0.05f;
  if (chance(70)) p.allowed_token_ids = {request.prompt[0], request.prompt[1], request.prompt[2], request.prompt[3]};
  if (chance(30)) p.repetition_penalty = 1.2f;
  if (chance(30)) p.presence_penalty = 0.5f;
  if (chance(30)) p.frequency_penalty = 0.3f;
  if (chance(20)) p.min_tokens = static_cast<int32_t>(random() % 10);
  if (chance(20)) p.stop_token_ids = {request.prompt[0]};
  if (chance(20)) p.bad_words = {{request.prompt[1], request.prompt[2]}};
  if (chance(20)) p.logit_bias = {{request.prompt[3], 1.5f}};
  if (chance(25)) request.logprobs = 2;
  if (chance(20)) request.n = 3;
  return request;
}

void expect_equal(const std::vector<Choice>& got, const std::vector<Choice>& want, size_t which) {
  ASSERT_EQ(got.size(), want.size()) << which;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << "request " << which << " choice " << i;
    EXPECT_EQ(got[i].finish, want[i].finish) << which;
    EXPECT_EQ(got[i].stop_reason, want[i].stop_reason) << which;
    ASSERT_EQ(got[i].scores.size(), want[i].scores.size()) << which;
    for (size_t t = 0; t < got[i].scores.size(); ++t) {
      EXPECT_EQ(got[i].scores[t].logprob, want[i].scores[t].logprob) << which;
      EXPECT_EQ(got[i].scores[t].rank, want[i].scores[t].rank) << which;
    }
  }
}

LlmOptions with(Speculation kind, LlmOptions options = tiny_options()) {
  options.speculate = kind;
  options.draft_tokens = 4;
  return options;
}

// Random requests, and what each is answered alone without guesses.
struct Answered {
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<Choice>> want;
};

Answered answered_plainly(size_t count, uint32_t seed) {
  const LlmOptions options = with(Speculation::off);
  Llm plain(Engine::load(options.engine), nullptr, options);
  std::mt19937 random(seed);
  Answered answered;
  for (size_t i = 0; i < count; ++i) {
    answered.requests.push_back(random_request(random, plain.limits()));
    answered.want.push_back(answer(plain, answered.requests.back()));
  }
  EXPECT_EQ(plain.stats().drafts, 0u);
  return answered;
}

TEST(LlmSpeculation, AnswersAreThoseOfPlainDecoding) {
  const size_t count = soak() ? 500 : 160;
  const auto [requests, want] = answered_plainly(count, 17);
  for (const Speculation kind : {Speculation::lookup, Speculation::suffix}) {
    const LlmOptions options = with(kind);
    Llm llm(Engine::load(options.engine), nullptr, options);
    uint64_t tokens = 0;
    for (size_t i = 0; i < count; ++i) expect_equal(answer(llm, requests[i]), want[i], i);
    const LlmStats stats = llm.stats();
    EXPECT_GT(stats.drafts, count / 4);
    EXPECT_GT(stats.accepted_tokens, 0u);
    EXPECT_LT(stats.accepted_tokens, stats.draft_tokens) << "guesses that fail are part of the test";
    for (const uint64_t at : stats.accepted_at_position) tokens += at;
    EXPECT_EQ(tokens, stats.accepted_tokens);
    expect_clean(llm);
  }
}

// Side by side, with too few blocks for all: sequences lose theirs while their drafts are being verified.
TEST(LlmSpeculation, AnswersInACrowdThatIsPreempted) {
  const size_t count = soak() ? 400 : 96;
  const auto [requests, want] = answered_plainly(count, 23);
  LlmOptions options = with(Speculation::suffix);
  options.engine.kv_blocks = 40;
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> running;
  for (const GenerationRequest& request : requests) running.push_back(llm.submit(request));
  for (size_t i = 0; i < count; ++i) expect_equal(collect(*running[i]), want[i], i);
  const LlmStats stats = llm.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.drafts, 0u);
  expect_clean(llm);
}

TEST(LlmSpeculation, ARequestCanDoWithout) {
  const LlmOptions options = with(Speculation::suffix);
  Llm llm(Engine::load(options.engine), nullptr, options);
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    GenerationRequest request = random_request(random, llm.limits());
    request.speculate = false;
    answer(llm, request);
  }
  EXPECT_EQ(llm.stats().drafts, 0u);
}

// A greedy answer that goes round in circles is guessed almost whole.
TEST(LlmSpeculation, FewerStepsForTextThatRepeatsItself) {
  uint64_t steps[2];
  for (const bool speculate : {false, true}) {
    const LlmOptions options = with(speculate ? Speculation::lookup : Speculation::off);
    Llm llm(Engine::load(options.engine), nullptr, options);
    GenerationRequest request = greedy({1, 2, 3}, 80);
    request.sampling.allowed_token_ids = {7};
    EXPECT_EQ(answer(llm, request)[0].token_ids, std::vector<int32_t>(80, 7));
    steps[speculate] = llm.stats().steps;
  }
  EXPECT_LT(steps[1], steps[0] * 2 / 3);
}

}  // namespace
}  // namespace ingot::testing
