// A model in stages: several steps are in flight, and every answer is that of one process.
#include <gtest/gtest.h>

#include "engine/rank_rig.h"
#include "orchestrator/structured_rig.h"

namespace ingot::testing {
namespace {

// Greedy and drawn, with histories, scores, several choices, beams, grammars; prompts of one chunk and of several.
std::vector<GenerationRequest> mixed_requests() {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    GenerationRequest request = greedy(random_ids(4 + 9 * i, kStructuredVocab, 50 + i), 24 + i % 5);
    if (i % 3 == 1) {
      request.sampling.temperature = 1.1f;
      request.sampling.seed = i;
      request.sampling.repetition_penalty = 1.2f;
      request.logprobs = 2;
    }
    if (i % 4 == 3) request.n = 2;
    if (i == 5) request.prompt_logprobs = 1;
    if (i == 8) request.n = 1, request.best_of = 3, request.beam_search = true;
    requests.push_back(std::move(request));
  }
  requests.push_back(structured_request(structured(StructuredOutput::Kind::json_schema, kCustomer), 3));
  requests.push_back(structured_request(structured(StructuredOutput::Kind::json_schema, kCustomer), 7));
  return requests;
}

using Answers = std::vector<std::vector<Choice>>;

Answers answers_of_stages(Llm& llm, bool at_once) {
  Answers answers;
  if (at_once) {
    for (const auto& generation : submit_together(llm, mixed_requests())) answers.push_back(collect(*generation));
  } else {
    for (const GenerationRequest& request : mixed_requests()) answers.push_back(answer(llm, request));
  }
  expect_clean(llm);
  return answers;
}

void expect_same_answers(const Answers& expected, const Answers& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    ASSERT_EQ(expected[i].size(), got[i].size());
    for (size_t c = 0; c < expected[i].size(); ++c) {
      EXPECT_EQ(expected[i][c].token_ids, got[i][c].token_ids);
      EXPECT_EQ(expected[i][c].text, got[i][c].text);
      EXPECT_EQ(expected[i][c].finish, got[i][c].finish);
      ASSERT_EQ(expected[i][c].scores.size(), got[i][c].scores.size());
      for (size_t t = 0; t < got[i][c].scores.size(); ++t)
        EXPECT_EQ(expected[i][c].scores[t].logprob, got[i][c].scores[t].logprob);
    }
  }
}

TEST(LlmStages, AnswerAsOneProcessWithSeveralStepsInFlight) {
  LlmOptions options = structured_options();
  options.engine.max_step_tokens = 48;
  const Answers expected = answers_of_stages(*structured_llm(options), false);
  for (const int64_t blocks : {512, 26}) {  // with 26 of them sequences lose theirs
    for (const Cut& cut : {Cut(1, 2), Cut(2, 2)}) {
      SCOPED_TRACE(std::to_string(cut.tp) + " x " + std::to_string(cut.pp) + ", blocks " + std::to_string(blocks));
      LlmOptions staged = options;
      staged.engine.kv_blocks = blocks;
      with_followers(staged.engine, cut, [&](const EngineOptions& own) {
        staged.engine = own;
        const std::unique_ptr<Llm> llm = structured_llm(staged);
        expect_same_answers(expected, answers_of_stages(*llm, true));
        EXPECT_EQ(llm->stats().most_in_flight, cut.pp + 1);
        if (blocks < 512) {
          EXPECT_GT(llm->stats().preemptions, 0u);
        }
        staged.engine.group = nullptr;
      });
    }
  }
}

TEST(LlmStages, StreamsAreDividedAmongSteps) {
  LlmOptions options = structured_options();
  options.speculate = Speculation::off;
  with_followers(options.engine, {1, 2}, [&](const EngineOptions& own) {
    LlmOptions staged = options;
    staged.engine = own;
    const std::unique_ptr<Llm> llm = structured_llm(staged);
    std::vector<GenerationRequest> requests;
    for (uint32_t i = 0; i < 4; ++i) requests.push_back(greedy(random_ids(5, kStructuredVocab, i), 40));
    for (const auto& generation : submit_together(*llm, requests)) collect(*generation);
    // 4 times 39 rows, two in a step at most.
    EXPECT_GE(llm->stats().steps, 4 * 39 / 2);
    EXPECT_GE(llm->stats().most_in_flight, 2);
  });
}

TEST(LlmStages, WithoutOverlapOneStepIsInFlight) {
  LlmOptions options = structured_options();
  options.overlap = false;
  const Answers expected = answers_of_stages(*structured_llm(options), false);
  with_followers(options.engine, {1, 2}, [&](const EngineOptions& own) {
    LlmOptions staged = options;
    staged.engine = own;
    const std::unique_ptr<Llm> llm = structured_llm(staged);
    expect_same_answers(expected, answers_of_stages(*llm, true));
    EXPECT_EQ(llm->stats().most_in_flight, 1);
  });
}

// The draft model is whole on rank 0; the others verify what it says as they verify any guess.
TEST(LlmRanks, ADraftModelGuessesForAllOfThem) {
  LlmOptions options = tiny_options("llama-bf16-llama3");
  const auto answers = [](Llm& llm) {
    std::vector<GenerationRequest> requests;
    for (uint32_t i = 0; i < 4; ++i) {
      requests.push_back(greedy(random_ids(6 + 15 * i, 200, i), 30));
      if (i % 2 == 1) requests.back().sampling.temperature = 0.9f, requests.back().sampling.seed = i;
    }
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& generation : submit_together(llm, requests)) tokens.push_back(collect(*generation)[0].token_ids);
    expect_clean(llm);
    return tokens;
  };
  options.speculate = Speculation::off;
  const auto expected = answers(*Llm::load(options));
  with_followers(options.engine, {2}, [&](const EngineOptions& own) {
    LlmOptions shared = options;
    shared.engine = own;
    shared.speculate = Speculation::draft;
    shared.draft_model = options.engine.model;  // it is nearly always right
    shared.draft_tokens = 3;
    const std::unique_ptr<Llm> llm = Llm::load(shared);
    EXPECT_EQ(answers(*llm), expected);
    EXPECT_GT(llm->stats().accepted_tokens, 40u);
    shared.engine.group = nullptr;
  });
}

TEST(LlmStages, WhatIsOfOneProcessIsDeclined) {
  LlmOptions options = tiny_options();
  options.engine.pp = 2;
  options.prefix_dir = "/tmp";
  try {
    Llm::load(options);
    ADD_FAILURE() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--prefix-dir cannot be combined with --pp 2: leave it out");
  }
}

}  // namespace
}  // namespace ingot::testing
