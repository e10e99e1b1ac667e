// A budget for reasoning: closed after so many tokens, whatever the model thinks; then free text, or what it is held
// to.
#include <gtest/gtest.h>

#include "orchestrator/structured_rig.h"

namespace ingot::testing {
namespace {

using Kind = StructuredOutput::Kind;

constexpr const char* kClose = "</think>";

StructuredOutput thoughtful(StructuredOutput what, bool inside = true) {
  what.frame.reasoning = {.open = "<think>", .close = kClose, .inside = inside, .never = {}};
  return what;
}

GenerationRequest thinking_request(const StructuredOutput& what, int64_t budget, uint32_t seed,
                                   int64_t max_tokens = 120) {
  GenerationRequest request = structured_request(what, seed, max_tokens);
  request.thinking_budget = budget;
  return request;
}

// Tokens before those of the mark.
int64_t thought_tokens(const Tokenizer& tokenizer, const Choice& choice) {
  std::string text;
  for (size_t i = 0; i < choice.token_ids.size(); ++i) {
    text += tokenizer.token_bytes(choice.token_ids[i]);
    if (text.ends_with(kClose))
      return static_cast<int64_t>(i + 1 - tokenizer.encode(kClose, {.add_special = false}).size());
  }
  return -1;
}

TEST(LlmThinking, ClosesTheBlockWhenTheBudgetIsSpent) {
  const auto llm = structured_llm(structured_options());
  const StructuredOutput schema = thoughtful(structured(Kind::json_schema, kCustomer));
  const StructuredOutput text = thoughtful(structured(Kind::free_text, ""));
  for (const StructuredOutput& what : {schema, text})
    for (const int64_t budget : {0, 1, 7, 30})
      for (uint32_t seed = 1; seed <= 3; ++seed) {
        const Choice choice = answer(*llm, thinking_request(what, budget, seed))[0];
        expect_holds(*llm, what, choice);
        const int64_t thought = thought_tokens(*llm->tokenizer(), choice);
        EXPECT_GE(thought, budget) << choice.text;
        EXPECT_LE(thought, budget + 3) << "a character that has begun comes to its end: " << choice.text;
      }
  expect_clean(*llm);
}

TEST(LlmThinking, WithoutABudgetTheBlockIsTheModels) {
  const auto llm = structured_llm(structured_options());
  const StructuredOutput what = thoughtful(structured(Kind::json_schema, kCustomer));
  const Choice choice = answer(*llm, thinking_request(what, -1, 1))[0];
  EXPECT_EQ(thought_tokens(*llm->tokenizer(), choice), -1) << "this model never closes it: " << choice.text;
  EXPECT_EQ(choice.finish, FinishReason::length);
  expect_holds(*llm, what, choice);
}

TEST(LlmThinking, CountsFromWhereTheModelOpensTheBlock) {
  const auto llm = structured_llm(structured_options());
  const StructuredOutput what = thoughtful(structured(Kind::choice, "", {"Z"}), false);
  const auto open = static_cast<int64_t>(llm->tokenizer()->encode("<think>", {.add_special = false}).size());
  int opened = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const Choice choice = answer(*llm, thinking_request(what, 4, seed))[0];
    expect_holds(*llm, what, choice);
    EXPECT_TRUE(choice.text.ends_with("Z")) << choice.text;
    if (!choice.text.starts_with("<think>")) continue;
    ++opened;
    EXPECT_GE(thought_tokens(*llm->tokenizer(), choice), open + 4) << choice.text;
    EXPECT_LE(thought_tokens(*llm->tokenizer(), choice), open + 7) << choice.text;
  }
  EXPECT_GT(opened, 0);
}

TEST(LlmThinking, DrawnOrJumpedOverTheSameTokens) {
  const auto llm = structured_llm(structured_options());
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    GenerationRequest request = thinking_request(thoughtful(structured(Kind::json_schema, kCustomer)), 6, seed);
    request.structured.strict = true;
    const Choice jumped = answer(*llm, request)[0];
    request.logprobs = 0;
    const Choice drawn = answer(*llm, request)[0];
    EXPECT_EQ(jumped.token_ids, drawn.token_ids) << jumped.text << "\n" << drawn.text;
    EXPECT_EQ(drawn.scores.size(), drawn.token_ids.size());
  }
}

// Several choices, crowded, in chunks and preempted: as each alone.
TEST(LlmThinking, SameTokensInACrowdAndPreempted) {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 16; ++i) {
    const Kind kind = i % 2 == 0 ? Kind::free_text : Kind::json_schema;
    requests.push_back(thinking_request(thoughtful(structured(kind, i % 2 == 0 ? "" : kCustomer)), i * 3, i, 70));
    if (i % 4 == 0) requests.back().n = 2;
    if (i % 5 == 0) requests.back().structured = {};
  }
  std::vector<std::vector<Choice>> alone;
  {
    const auto llm = structured_llm(structured_options());
    for (const GenerationRequest& request : requests) alone.push_back(answer(*llm, request));
  }
  LlmOptions options = structured_options();
  options.engine.max_step_tokens = 16;
  options.engine.kv_blocks = 40;
  const auto llm = structured_llm(options);
  const std::vector<std::shared_ptr<Generation>> generations = submit_together(*llm, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<Choice> choices = collect(*generations[i]);
    ASSERT_EQ(choices.size(), alone[i].size());
    for (size_t c = 0; c < choices.size(); ++c) EXPECT_EQ(choices[c].token_ids, alone[i][c].token_ids) << i;
  }
  EXPECT_GT(llm->stats().preemptions, 0u);
  expect_clean(*llm);
}

TEST(LlmThinking, CountsAsTokensOfTheAnswer) {
  const auto llm = structured_llm(structured_options());
  const auto generation = llm->submit(thinking_request(thoughtful(structured(Kind::free_text, "")), 5, 1, 9));
  const Choice choice = collect(*generation)[0];
  EXPECT_EQ(choice.token_ids.size(), 9u) << choice.text;
  EXPECT_EQ(choice.finish, FinishReason::length);
  EXPECT_EQ(generation->summary().completion_tokens, 9);
}

TEST(LlmThinking, GrammarsDifferByTheirFrames) {
  const auto llm = structured_llm(structured_options());
  StructuredOutput plain = structured(Kind::json_schema, kCustomer), inside = thoughtful(plain);
  StructuredOutput before = thoughtful(plain, false), again = thoughtful(plain), opened = plain;
  opened.frame.content_open = "x";
  for (StructuredOutput* each : {&plain, &inside, &before, &again, &opened}) llm->compile(*each);
  EXPECT_EQ(inside.compiled, again.compiled);
  EXPECT_NE(inside.compiled, plain.compiled);
  EXPECT_NE(inside.compiled, before.compiled);
  EXPECT_NE(opened.compiled, plain.compiled);
}

}  // namespace
}  // namespace ingot::testing
