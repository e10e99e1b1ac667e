#pragma once

#include <gtest/gtest.h>

#include <random>

#include "orchestrator/structured_rig.h"

// Requests of all parameters, and whether their answers are equal, for what guesses must not change.
namespace ingot::testing {

// A text that repeats itself, so that there is much to guess and much of it is wrong.
inline std::vector<int32_t> repetitive_prompt(std::mt19937& random, size_t most) {
  std::vector<int32_t> words;
  for (int i = 0; i < 5; ++i) words.push_back(static_cast<int32_t>(random() % kStructuredVocab));
  std::vector<int32_t> prompt;
  const size_t length = 4 + random() % (most - 4);
  while (prompt.size() < length) prompt.push_back(words[random() % words.size()]);
  return prompt;
}

inline StructuredOutput random_structure(std::mt19937& random) {
  using Kind = StructuredOutput::Kind;
  switch (random() % 4) {
    case 0: return structured(Kind::json_schema, kCustomer);
    case 1: return structured(Kind::regex, "(true|false|null)(, (true|false|customer)){2,8}");
    case 2: return structured(Kind::choice, "", {"customer address", "customer", "address: true"});
    default: return structured(Kind::json_object, "");
  }
}

// Every parameter that a request has, but beams.
inline GenerationRequest random_request(std::mt19937& random, size_t most_prompt, int64_t most_tokens) {
  const auto chance = [&random](int percent) { return static_cast<int>(random() % 100) < percent; };
  GenerationRequest request;
  request.prompt = repetitive_prompt(random, most_prompt);
  request.max_tokens = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most_tokens));
  request.ignore_eos = chance(80);
  request.client = chance(50) ? "one" : "two";
  SamplingParams& p = request.sampling;
  p.seed = random();
  p.temperature = chance(30) ? 0.0f : 0.8f;
  if (chance(30)) p.top_k = 2 + static_cast<int32_t>(random() % 4);
  if (chance(30)) p.top_p = 0.8f;
  if (chance(20)) p.min_p = 0.05f;
  if (chance(30)) p.repetition_penalty = 1.2f;
  if (chance(30)) p.presence_penalty = 0.5f;
  if (chance(30)) p.frequency_penalty = 0.3f;
  if (chance(20)) p.min_tokens = static_cast<int32_t>(random() % 10);
  if (chance(20)) p.stop_token_ids = {request.prompt[0]};
  if (chance(20)) p.logit_bias = {{request.prompt[3], 1.5f}};
  if (chance(20)) request.stop = {"true", "w3", "e"};
  if (chance(10)) request.include_stop = true;
  if (chance(10)) request.bad_words = {"customer", "null"};
  if (chance(25)) request.logprobs = 2;
  if (chance(10)) request.prompt_logprobs = 1;
  if (chance(20)) request.n = 2;
  if (chance(10)) request.best_of = request.n + 1;
  if (chance(35)) {
    request.structured = random_structure(random);
  } else {
    if (chance(60)) p.allowed_token_ids = {request.prompt[0], request.prompt[1], request.prompt[2], request.prompt[3]};
    if (chance(20)) p.bad_words = {{request.prompt[1], request.prompt[2]}};
  }
  return request;
}

inline void expect_equal(const std::vector<Choice>& got, const std::vector<Choice>& want, size_t which) {
  ASSERT_EQ(got.size(), want.size()) << which;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << "request " << which << " choice " << i;
    EXPECT_EQ(got[i].text, want[i].text) << which;
    EXPECT_EQ(got[i].finish, want[i].finish) << which;
    EXPECT_EQ(got[i].stop_reason, want[i].stop_reason) << which;
    ASSERT_EQ(got[i].scores.size(), want[i].scores.size()) << which;
    for (size_t t = 0; t < got[i].scores.size(); ++t) {
      EXPECT_EQ(got[i].scores[t].logprob, want[i].scores[t].logprob) << which;
      EXPECT_EQ(got[i].scores[t].rank, want[i].scores[t].rank) << which;
    }
  }
}

// All at a time, with too few blocks: sequences lose theirs while their drafts are being verified.
inline void expect_equal_in_a_crowd(Llm& llm, const std::vector<GenerationRequest>& requests,
                                    const std::vector<std::vector<Choice>>& want) {
  std::vector<std::shared_ptr<Generation>> running = submit_together(llm, requests);
  for (size_t i = 0; i < running.size(); ++i) expect_equal(collect(*running[i]), want[i], i);
  const LlmStats stats = llm.stats();
  if (requests.size() >= 60) {
    EXPECT_GT(stats.preemptions, 0u);
  }
  EXPECT_GT(stats.drafts, 0u);
  running.clear();
  expect_clean(llm);
}

inline LlmOptions with(Speculation kind, LlmOptions options = structured_options()) {
  options.speculate = kind;
  options.draft_tokens = options.engine.max_step_tokens < 8 ? 2 : 4;
  return options;
}

}  // namespace ingot::testing
