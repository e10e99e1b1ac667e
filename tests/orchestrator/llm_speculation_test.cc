// Guessing changes the number of steps and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "orchestrator/speculation_rig.h"

namespace ingot::testing {
namespace {

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

TEST_P(LlmSpeculationOn, AnswersInACrowdThatIsPreempted) {
  for (const Speculation kind : {Speculation::draft, Speculation::suffix}) {
    if (little() && kind == Speculation::suffix) continue;
    LlmOptions options = with(kind, options_);
    options.engine.kv_blocks = little() ? 18 : 40;
    expect_equal_in_a_crowd(*speculating(options, word_tokenizer()), requests_, want_);
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
  for (int i = 0; i < 24; ++i) requests.push_back(random_request(random, 100, 80));
  const std::vector<std::shared_ptr<Generation>> running = submit_together(llm, requests);
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
