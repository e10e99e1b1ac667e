// Guessing changes the number of steps and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "orchestrator/structured_rig.h"

namespace ingot::testing {
namespace {

// A text that repeats itself, so that there is much to guess and much of it is wrong.
std::vector<int32_t> repetitive_prompt(std::mt19937& random, size_t most) {
  std::vector<int32_t> words;
  for (int i = 0; i < 5; ++i) words.push_back(static_cast<int32_t>(random() % kStructuredVocab));
  std::vector<int32_t> prompt;
  const size_t length = 4 + random() % (most - 4);
  while (prompt.size() < length) prompt.push_back(words[random() % words.size()]);
  return prompt;
}

StructuredOutput random_structure(std::mt19937& random) {
  using Kind = StructuredOutput::Kind;
  switch (random() % 4) {
    case 0: return structured(Kind::json_schema, kCustomer);
    case 1: return structured(Kind::regex, "(true|false|null)(, (true|false|customer)){2,8}");
    case 2: return structured(Kind::choice, "", {"customer address", "customer", "address: true"});
    default: return structured(Kind::json_object, "");
  }
}

// Every parameter that a request has, but beams.
GenerationRequest random_request(std::mt19937& random, size_t most_prompt, int64_t most_tokens) {
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

void expect_equal(const std::vector<Choice>& got, const std::vector<Choice>& want, size_t which) {
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

LlmOptions with(Speculation kind, LlmOptions options = structured_options()) {
  options.speculate = kind;
  options.draft_tokens = options.engine.max_step_tokens < 8 ? 2 : 4;
  return options;
}

// The model guesses for itself: wrong where the other draws.
std::unique_ptr<Llm> speculating(const LlmOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  std::unique_ptr<Engine> draft_engine;
  if (options.speculate == Speculation::draft) draft_engine = Engine::load(options.engine);
  return std::make_unique<Llm>(Engine::load(options.engine), std::move(tokenizer), options, std::move(draft_engine));
}

class LlmSpeculationOn : public ::testing::TestWithParam<std::string> {
 protected:
  // The software device is slow, and each size of a step is kernels to compile.
  bool little() const { return GetParam() == "metal" && !soak() && asked() == nullptr; }
  static const char* asked() { return std::getenv("INGOT_SPECULATION_REQUESTS"); }

  void SetUp() override {
    INGOT_SKIP_WITHOUT_CUDA(GetParam());
    if (GetParam() == "metal") test::metal_in_asked_mode();
    count_ = asked() != nullptr ? std::stoul(asked()) : little() ? 4 : soak() ? 500 : kSanitized ? 16 : 60;
    options_ = structured_options();
    options_.engine.device = GetParam();
    options_.engine.max_model_len = 144;
    if (little()) {
      options_.engine.max_seqs = 2;
      options_.engine.max_step_tokens = 4;
    }
    // What each is answered alone without guesses.
    const std::unique_ptr<Llm> plain = speculating(with(Speculation::off, options_), word_tokenizer());
    std::mt19937 random(17);
    for (size_t i = 0; i < count_; ++i) {
      requests_.push_back(random_request(random, little() ? 8 : 40, little() ? 8 : 40));
      want_.push_back(answer(*plain, requests_.back()));
    }
    EXPECT_EQ(plain->stats().drafts, 0u);
  }

  size_t count_ = 0;
  LlmOptions options_;
  std::vector<GenerationRequest> requests_;
  std::vector<std::vector<Choice>> want_;
};

TEST_P(LlmSpeculationOn, AnswersAreThoseOfPlainDecoding) {
  for (const Speculation kind : {Speculation::draft, Speculation::lookup, Speculation::suffix}) {
    if (little() && kind == Speculation::lookup) continue;
    const std::unique_ptr<Llm> llm = speculating(with(kind, options_), word_tokenizer());
    uint64_t tokens = 0;
    for (size_t i = 0; i < count_; ++i) expect_equal(answer(*llm, requests_[i]), want_[i], i);
    const LlmStats stats = llm->stats();
    EXPECT_GT(stats.drafts, count_ / 8);
    EXPECT_GT(stats.accepted_tokens, 0u);
    if (!little()) {
      EXPECT_LT(stats.accepted_tokens, stats.draft_tokens) << "guesses that fail are part of the test";
    }
    for (const uint64_t at : stats.accepted_at_position) tokens += at;
    EXPECT_EQ(tokens, stats.accepted_tokens);
    EXPECT_EQ(stats.draft_steps > 0, kind == Speculation::draft);
    expect_clean(*llm);
  }
}

// Side by side, with too few blocks for all: sequences lose theirs while their drafts are being verified.
TEST_P(LlmSpeculationOn, AnswersInACrowdThatIsPreempted) {
  for (const Speculation kind : {Speculation::draft, Speculation::suffix}) {
    if (little() && kind == Speculation::suffix) continue;
    LlmOptions options = with(kind, options_);
    options.engine.kv_blocks = little() ? 18 : 40;
    const std::unique_ptr<Llm> llm = speculating(options, word_tokenizer());
    std::vector<std::shared_ptr<Generation>> running;
    for (const GenerationRequest& request : requests_) running.push_back(llm->submit(request));
    for (size_t i = 0; i < count_; ++i) expect_equal(collect(*running[i]), want_[i], i);
    const LlmStats stats = llm->stats();
    if (count_ >= 60) {
      EXPECT_GT(stats.preemptions, 0u);
    }
    EXPECT_GT(stats.drafts, 0u);
    running.clear();
    expect_clean(*llm);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LlmSpeculationOn, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Metal, LlmSpeculationOn, ::testing::ValuesIn(unless_sanitized<std::string>({"metal"}, {})));
INSTANTIATE_TEST_SUITE_P(Cuda, LlmSpeculationOn, ::testing::Values("cuda"));

// As many guesses as pay, by a model that knows nothing.
TEST(LlmSpeculation, AModelThatGuessesWrong) {
  LlmOptions options = with(Speculation::off);
  const std::unique_ptr<Llm> plain = speculating(options, word_tokenizer());
  options.speculate = Speculation::draft;
  EngineOptions random_weights = options.engine;
  random_weights.load_format = "dummy";
  for (const int32_t fixed : {3, 0}) {
    options.draft_tokens = fixed;
    Llm llm(Engine::load(options.engine), word_tokenizer(), options, Engine::load(random_weights));
    std::mt19937 random(29);
    for (size_t i = 0; i < 12; ++i) {
      const GenerationRequest request = random_request(random, 40, 40);
      expect_equal(answer(llm, request), answer(*plain, request), i);
    }
    const LlmStats stats = llm.stats();
    if (fixed > 0) {
      EXPECT_LT(stats.accepted_tokens, stats.draft_tokens);
    }
    expect_clean(llm);
  }
}

// A draft model has blocks of its own, and may have fewer than the sequences want.
TEST(LlmSpeculation, ADraftModelWithFewBlocks) {
  LlmOptions options = with(Speculation::draft);
  EngineOptions few = options.engine;
  few.kv_blocks = 18;
  few.max_model_len = 64;
  const std::unique_ptr<Llm> plain = speculating(with(Speculation::off), word_tokenizer());
  Llm llm(Engine::load(options.engine), word_tokenizer(), options, Engine::load(few));
  std::mt19937 random(31);
  std::vector<GenerationRequest> requests;
  std::vector<std::shared_ptr<Generation>> running;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(random_request(random, 100, 80));
    running.push_back(llm.submit(requests.back()));
  }
  for (size_t i = 0; i < requests.size(); ++i) expect_equal(collect(*running[i]), answer(*plain, requests[i]), i);
  EXPECT_GT(llm.stats().accepted_tokens, 0u);
  expect_clean(llm);
}

// A step of the draft model that fails costs guesses and nothing else.
TEST(LlmSpeculation, ADraftModelThatFails) {
  const LlmOptions options = with(Speculation::draft);
  const std::unique_ptr<Llm> plain = speculating(with(Speculation::off), word_tokenizer());
  std::unique_ptr<Engine> draft_engine = Engine::load(options.engine);
  Backend& device = EngineInternals::device(*draft_engine);
  Llm llm(Engine::load(options.engine), word_tokenizer(), options, std::move(draft_engine));
  std::mt19937 random(37);
  for (size_t i = 0; i < 12; ++i) {
    const GenerationRequest request = random_request(random, 40, 40);
    if (i % 3 == 1) device.inject_failure();
    expect_equal(answer(llm, request), answer(*plain, request), i);
  }
  EXPECT_GT(llm.stats().accepted_tokens, 0u);
  EXPECT_EQ(llm.stats().failed_steps, 0u);
  expect_clean(llm);
}

TEST(LlmSpeculation, ADraftModelNeedsTheSameVocabulary) {
  LlmOptions options = tiny_options("llama-bf16-tied");
  options.speculate = Speculation::draft;
  const auto refusal = [&options] {
    try {
      Llm::load(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "--speculate draft needs a model that guesses: give --draft-model");
  options.draft_model = fixture_model("llama-bf16-llama3");
  EXPECT_EQ(refusal(), "--draft-model " + options.draft_model +
                           ": it has 211 tokens, the model 331; take a draft model with the same vocabulary");
}

// Under a grammar there is much to guess: the client's last answers had the same shape.
TEST(LlmSpeculation, GuessesUnderAGrammar) {
  uint64_t steps[2];
  for (const bool speculate : {false, true}) {
    const std::unique_ptr<Llm> llm =
        speculating(with(speculate ? Speculation::suffix : Speculation::off), word_tokenizer());
    // Logprobs: nothing is left undrawn because there is no choice.
    for (uint32_t seed = 0; seed < 6; ++seed) {
      GenerationRequest request = structured_request(structured(StructuredOutput::Kind::json_schema, kCustomer), seed);
      request.logprobs = 0;
      expect_holds(*llm, request.structured, answer(*llm, request)[0]);
    }
    steps[speculate] = llm->stats().steps;
    if (speculate) {
      EXPECT_GT(llm->stats().accepted_tokens, 20u);
    }
  }
  EXPECT_LT(steps[1], steps[0] * 3 / 4);
}

TEST(LlmSpeculation, ARequestCanDoWithout) {
  const std::unique_ptr<Llm> llm = speculating(with(Speculation::suffix), word_tokenizer());
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    GenerationRequest request = random_request(random, 40, 40);
    request.speculate = false;
    answer(*llm, request);
  }
  EXPECT_EQ(llm->stats().drafts, 0u);
}

// A greedy answer that goes round in circles is guessed almost whole. Without overlap: with it a busy machine may find
// that waiting for a token takes longer than a step, and guess seldom.
TEST(LlmSpeculation, FewerStepsForTextThatRepeatsItself) {
  uint64_t steps[3];
  for (const Speculation kind : {Speculation::off, Speculation::lookup, Speculation::draft}) {
    LlmOptions options = with(kind);
    options.overlap = false;
    const std::unique_ptr<Llm> llm = speculating(options, word_tokenizer());
    GenerationRequest request = greedy({1, 2, 3}, 80);
    if (kind != Speculation::draft) request.sampling.allowed_token_ids = {7};
    EXPECT_EQ(answer(*llm, request)[0].token_ids.size(), 80u);
    steps[kind == Speculation::off ? 0 : kind == Speculation::lookup ? 1 : 2] = llm->stats().steps;
  }
  EXPECT_LT(steps[1], steps[0] * 2 / 3);
  EXPECT_LT(steps[2], steps[0] / 3) << "what it would say itself is always right";
}

}  // namespace
}  // namespace ingot::testing
