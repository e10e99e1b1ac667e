// Structured output: masks that reach the sampler, forks, jumps, preemption, and what does not hold to anything.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"
#include "orchestrator/request.h"
#include "orchestrator/structured_rig.h"
#include "soak.h"

namespace ingot::testing {
namespace {

using Kind = StructuredOutput::Kind;

constexpr const char* kTree = R"x(root ::= "(" root? ")" | [a-c]{1,3})x";

std::vector<StructuredOutput> all_kinds() {
  StructuredOutput strict = structured(Kind::json_schema, kCustomer);
  strict.strict = true;
  return {
      structured(Kind::json_schema, kCustomer),
      strict,
      structured(Kind::regex, "[0-9]{3}-[a-f]{2,4}(customer)?"),
      structured(Kind::choice, "", {"customer", "custom", "address", "x"}),
      structured(Kind::gbnf, kTree),
      structured(Kind::json_object, ""),
      structured(Kind::structural_tag,
                 R"({"structures":[{"begin":"<a>","schema":{"type":"boolean"},"end":"</a>"}],"triggers":["<a>"]})")};
}

// A mask that becomes ready after the loop looked for forced tokens is that of the token behind them: not of the next.
TEST(LlmStructured, NothingIsDrawnBeforeWhatIsForced) {
  const auto llm = structured_llm(structured_options());
  StructuredOutput what = structured(Kind::choice, "", {"customer address", "x"});
  llm->compile(what);
  MaskWorkers workers(2, [] {});
  ingot::Sequence sequence;
  sequence.guide = std::make_shared<GuidedText>(what.compiled, *llm->tokenizer(), true);
  workers.post(sequence.guide, {});
  while (sequence.guide->pending()) std::this_thread::yield();
  EXPECT_FALSE(sequence.waits_for_host());
  workers.post(sequence.guide, {'c'});
  while (sequence.guide->pending()) std::this_thread::yield();
  EXPECT_TRUE(sequence.waits_for_host());
  EXPECT_FALSE(sequence.guide->take_jump().empty());
  EXPECT_FALSE(sequence.waits_for_host());
}

TEST(LlmStructured, HoldsToEveryKind) {
  const auto llm = structured_llm(structured_options());
  for (const StructuredOutput& what : all_kinds()) {
    int ended = 0;
    const int seeds = test::kSanitized ? 2 : 6;
    for (int seed = 1; seed <= seeds; ++seed) {
      const Choice choice = answer(*llm, structured_request(what, static_cast<uint32_t>(seed)))[0];
      expect_holds(*llm, what, choice);
      ended += choice.finish == FinishReason::stop;
    }
    if (what.kind == Kind::regex || what.kind == Kind::choice) {
      EXPECT_EQ(ended, seeds);
    }
  }
  expect_clean(*llm);
}

TEST(LlmStructured, EndsOnlyWhereTheGrammarDoes) {
  const auto llm = structured_llm(structured_options());
  for (uint32_t seed = 0; seed < 8; ++seed) {
    GenerationRequest request = structured_request(structured(Kind::choice, "", {"a", "ab", "custom"}), seed);
    request.ignore_eos = seed % 2 == 0;  // there is nothing after a complete answer
    request.sampling.logit_bias = {{kStructuredEnd, 100.0f}};
    const Choice choice = answer(*llm, request)[0];
    EXPECT_TRUE(choice.text == "a" || choice.text == "custom") << choice.text;  // the end as soon as it may be
    EXPECT_EQ(choice.finish, FinishReason::stop);
    EXPECT_EQ(choice.token_ids.back(), kStructuredEnd);
  }
}

TEST(LlmStructured, EndsWithoutAnEndTokenWhereNothingElseMayFollow) {
  const auto llm = structured_llm(structured_options());
  GenerationRequest request = structured_request(structured(Kind::choice, "", {"ab"}), 1);
  request.sampling.bad_words = {{kStructuredEnd}, {2}};
  const Choice choice = answer(*llm, request)[0];
  EXPECT_EQ(choice.text, "ab");
  EXPECT_EQ(choice.finish, FinishReason::stop);
  request.sampling.bad_words = {{'b'}};
  EXPECT_EQ(answer(*llm, request)[0].finish, FinishReason::no_token);
  expect_clean(*llm);
}

// Text without a choice is not drawn: fewer steps, the same tokens as when it is (logprobs ask for that).
TEST(LlmStructured, JumpsAheadOverForcedText) {
  LlmOptions options = structured_options();
  options.speculate = Speculation::off;  // the second answer would be guessed from the first
  const auto llm = structured_llm(options);
  StructuredOutput what = structured(Kind::json_schema, kCustomer);
  what.strict = true;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    GenerationRequest request = structured_request(what, seed);
    if (seed % 2 == 0) request.sampling.repetition_penalty = 1.3f;  // its history has what was jumped over
    uint64_t steps = llm->stats().steps;
    const Choice jumped = answer(*llm, request)[0];
    const uint64_t with_jumps = llm->stats().steps - steps;
    request.logprobs = 0;
    steps = llm->stats().steps;
    const Choice drawn = answer(*llm, request)[0];
    EXPECT_EQ(jumped.token_ids, drawn.token_ids) << jumped.text << "\n" << drawn.text;
    EXPECT_EQ(drawn.scores.size(), drawn.token_ids.size());
    EXPECT_LT(with_jumps, llm->stats().steps - steps);
  }
}

TEST(LlmStructured, ChoicesGoTheirOwnWays) {
  const auto llm = structured_llm(structured_options());
  GenerationRequest request = structured_request(structured(Kind::json_schema, kCustomer), 3);
  request.n = 4;
  const std::vector<Choice> choices = answer(*llm, request);
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < choices.size(); ++i) {
    expect_holds(*llm, request.structured, choices[i]);
    GenerationRequest alone = request;
    alone.n = 1;
    alone.sampling.seed += i;
    EXPECT_EQ(answer(*llm, alone)[0].token_ids, choices[i].token_ids);
  }
  request.best_of = 6;
  request.n = 2;
  for (const Choice& choice : answer(*llm, request)) expect_holds(*llm, request.structured, choice);
  expect_clean(*llm);
}

// Alone, in a crowd, in chunks, preempted, from the cache, with and without overlap: the same tokens; and the same for
// neighbours without a grammar.
void compare_with_alone(const LlmOptions& options, bool expect_preemptions) {
  std::vector<GenerationRequest> requests;
  const std::vector<StructuredOutput> kinds = all_kinds();
  for (uint32_t i = 0; i < 24; ++i) {
    GenerationRequest request = structured_request(kinds[i % kinds.size()], i, 60);
    if (i % 4 == 3) request.structured = {};
    if (i % 4 == 3) request.ignore_eos = true;
    if (i % 5 == 0) request.n = 2;
    if (i % 6 == 0) request.prompt_logprobs = 1;
    if (i % 7 == 0) request.sampling.frequency_penalty = 0.5f;
    requests.push_back(request);
  }
  std::vector<std::vector<Choice>> alone;
  {
    LlmOptions one = structured_options();
    one.overlap = false;
    one.prefix_caching = false;
    const auto llm = structured_llm(one);
    for (const GenerationRequest& request : requests) alone.push_back(answer(*llm, request));
  }
  const auto llm = structured_llm(options);
  for (int round = 0; round < 2; ++round) {
    const std::vector<std::shared_ptr<Generation>> generations = submit_together(*llm, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<Choice> choices = collect(*generations[i]);
      ASSERT_EQ(choices.size(), alone[i].size());
      for (size_t choice = 0; choice < choices.size(); ++choice)
        EXPECT_EQ(choices[choice].token_ids, alone[i][choice].token_ids) << i << " " << alone[i][choice].text;
    }
  }
  if (expect_preemptions) {
    EXPECT_GT(llm->stats().preemptions, 0u);
  }
  expect_clean(*llm);
}

TEST(LlmStructured, SameTokensInACrowd) { compare_with_alone(structured_options(), false); }

TEST(LlmStructured, SameTokensInChunksAndPreempted) {
  LlmOptions options = structured_options();
  options.engine.max_step_tokens = 16;
  options.engine.kv_blocks = 40;
  compare_with_alone(options, true);
}

TEST(LlmStructured, CancelledAndLeftAtAnyMoment) {
  const auto llm = structured_llm(structured_options());
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 4; ++client)
    clients.emplace_back([&, client] {
      for (uint32_t i = 0; i < 10; ++i) {
        const auto generation = llm->submit(structured_request(all_kinds()[(client + i) % 7], i));
        std::this_thread::sleep_for(std::chrono::microseconds(300 * (i * 7 % 10)));
        generation->cancel();
        collect(*generation);
      }
    });
  for (std::thread& client : clients) client.join();
  expect_clean(*llm);
}

ErrorKind error_of(const std::function<void()>& call, std::string& param, std::string& message) {
  try {
    call();
  } catch (const Error& error) {
    param = error.param();
    message = error.what();
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(LlmStructured, ErrorsNameTheParameterAndThePlace) {
  const auto llm = structured_llm(structured_options());
  std::string param, message;
  StructuredOutput bad = structured(Kind::json_schema, R"({"type":"object","properties":{"a":{"$dynamicRef":"#x"}}})");
  bad.param = "response_format";
  EXPECT_EQ(error_of([&] { llm->compile(bad); }, param, message), ErrorKind::bad_call);
  EXPECT_EQ(param, "response_format");
  EXPECT_TRUE(message.starts_with("response_format: #/properties/a/$dynamicRef")) << message;
  GenerationRequest request = structured_request(structured(Kind::regex, "(a"), 1);
  EXPECT_EQ(error_of([&] { llm->submit(request); }, param, message), ErrorKind::bad_call);
  EXPECT_EQ(param, "structured");
  request = structured_request(structured(Kind::choice, "", {"a"}), 1);
  request.beam_search = true;
  request.sampling.temperature = 0;
  EXPECT_EQ(error_of([&] { llm->submit(request); }, param, message), ErrorKind::bad_call);
  EXPECT_EQ(param, "structured");
  std::atomic<bool> gone{true};
  StructuredOutput large = structured(Kind::regex, std::string(2000, '.'));
  EXPECT_EQ(error_of([&] { llm->compile(large, &gone); }, param, message), ErrorKind::cancelled);
  LlmOptions options = structured_options();
  Llm wordless(Engine::load(options.engine), nullptr, options);
  EXPECT_EQ(error_of([&] { wordless.compile(large); }, param, message), ErrorKind::bad_call);
  expect_clean(*llm);
}

TEST(LlmStructured, CompilesEqualTextsOnce) {
  const auto llm = structured_llm(structured_options());
  StructuredOutput first = structured(Kind::json_schema, kCustomer), again = first, strict = first;
  StructuredOutput salted = first;
  strict.strict = true;
  salted.cache_salt = "another's";
  llm->compile(first);
  llm->compile(again);
  llm->compile(strict);
  llm->compile(salted);
  EXPECT_NE(first.compiled, salted.compiled);
  EXPECT_EQ(first.compiled, again.compiled);
  EXPECT_NE(first.compiled, strict.compiled);
  EXPECT_TRUE(first.text.empty());
  StructuredOutput one = structured(Kind::choice, "", {"a", "b"}), other = structured(Kind::choice, "", {"a\n1:b"});
  llm->compile(one);
  llm->compile(other);
  EXPECT_NE(one.compiled, other.compiled);
  for (int i = 0; i < 40; ++i) {  // others take its place
    StructuredOutput next = structured(Kind::regex, "a{" + std::to_string(i + 1) + "}");
    llm->compile(next);
  }
  StructuredOutput later = structured(Kind::json_schema, kCustomer);
  llm->compile(later);
  EXPECT_NE(later.compiled, first.compiled);
}

}  // namespace
}  // namespace ingot::testing
