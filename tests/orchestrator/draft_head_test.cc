// Guesses by a head that reads the model's hidden states: they change the number of steps and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "engine/made_heads.h"
#include "formats/test_files.h"
#include "orchestrator/speculation_rig.h"

namespace ingot::testing {
namespace {

// A model and a head, in files.
struct Pair {
  Pair(const MadeModel& model, const MadeModel& head) {
    model.write(folder / "model");
    head.write(folder / "head");
  }
  // In which most guesses are right, and those of every `unknown`th token cannot be made.
  static Pair successors(int64_t unknown) {
    return {successor_target(kStructuredVocab), successor_head(kStructuredVocab, unknown)};
  }

  LlmOptions options(bool speculate) const {
    LlmOptions options = structured_options();
    options.engine.model = (folder / "model").string();
    if (!speculate) {
      options.speculate = Speculation::off;
      return options;
    }
    options.speculate = Speculation::draft;
    options.draft_model = (folder / "head").string();
    options.draft_tokens = 4;
    return options;
  }
  std::unique_ptr<Llm> llm(const LlmOptions& options, EngineOptions head) const {
    EngineOptions engine = options.engine;
    std::unique_ptr<Engine> draft;
    if (options.speculate == Speculation::draft) {
      engine.gives_states = true;
      engine.state_layers = Engine::head_needs(options.draft_model)->state_layers;
      head.model = options.draft_model;
      head.head_of = engine.model;
      draft = Engine::load(head);
      last_head = draft.get();
    }
    return std::make_unique<Llm>(Engine::load(engine), word_tokenizer(), options, std::move(draft));
  }
  std::unique_ptr<Llm> llm(const LlmOptions& options) const { return llm(options, options.engine); }

  TempDir folder;
  mutable Engine* last_head = nullptr;
};

class LlmHeadOn : public ::testing::TestWithParam<std::string> {
 protected:
  bool little() const { return GetParam() == "metal" && !soak(); }
  void SetUp() override {
    INGOT_SKIP_WITHOUT_CUDA(GetParam());
    if (GetParam() == "metal") test::metal_in_asked_mode();
    count_ = little() ? 4 : soak() ? 500 : kSanitized ? 16 : 60;
    const std::unique_ptr<Llm> plain = pair_.llm(options(false));
    std::mt19937 random(17);
    for (size_t i = 0; i < count_; ++i) {
      // Of few and short ones some are sure to be guessed.
      const auto token = static_cast<int32_t>(i);
      requests_.push_back(little() && i % 2 == 0 ? greedy({token, follows_after(token, kStructuredVocab)}, 12)
                                                 : random_request(random, little() ? 8 : 40, little() ? 8 : 40));
      want_.push_back(answer(*plain, requests_.back()));
    }
  }
  LlmOptions options(bool speculate) const {
    LlmOptions options = pair_.options(speculate);
    options.engine.device = GetParam();
    options.engine.max_model_len = 144;
    if (little()) {
      options.engine.max_seqs = 2;
      options.engine.max_step_tokens = 4;
      options.draft_tokens = 2;
    }
    return options;
  }

  Pair pair_ = Pair::successors(7);
  size_t count_ = 0;
  std::vector<GenerationRequest> requests_;
  std::vector<std::vector<Choice>> want_;
};

TEST_P(LlmHeadOn, AnswersAreThoseOfPlainDecoding) {
  const std::unique_ptr<Llm> llm = pair_.llm(options(true));
  for (size_t i = 0; i < count_; ++i) expect_equal(answer(*llm, requests_[i]), want_[i], i);
  const LlmStats stats = llm->stats();
  EXPECT_GT(stats.drafts, count_ / 8);
  EXPECT_GT(stats.accepted_tokens, 0u);
  EXPECT_GT(stats.draft_steps, 0u);
  if (!little()) {
    EXPECT_LT(stats.accepted_tokens, stats.draft_tokens) << "guesses that fail are part of the test";
  }
  expect_clean(*llm);
}

// In chunks, and with beginnings of which the head knows no states.
TEST_P(LlmHeadOn, AnswersInACrowdThatIsPreempted) {
  LlmOptions crowd = options(true);
  crowd.engine.kv_blocks = little() ? 18 : 40;
  if (!little()) crowd.engine.max_step_tokens = 24;
  expect_equal_in_a_crowd(*pair_.llm(crowd), requests_, want_);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LlmHeadOn, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Metal, LlmHeadOn, ::testing::ValuesIn(unless_sanitized<std::string>({"metal"}, {})));
INSTANTIATE_TEST_SUITE_P(Cuda, LlmHeadOn, ::testing::Values("cuda"));

// What a greedy text of this model says next.
std::vector<int32_t> successors(int32_t token, size_t count) {
  std::vector<int32_t> tokens;
  while (tokens.size() < count) tokens.push_back(token = follows_after(token, kStructuredVocab));
  return tokens;
}

// Every guess of a head that knows its model comes true: all tokens of drafts of four, whatever the prompt.
TEST(LlmHead, GuessesRightWhatItKnows) {
  const Pair pair = Pair::successors(0);
  LlmOptions options = pair.options(true);
  options.overlap = false;
  const std::unique_ptr<Llm> llm = pair.llm(options);
  for (const std::vector<int32_t>& prompt : {std::vector<int32_t>{9}, {5, 200, 31, 31, 7}, successors(3, 135)}) {
    const LlmStats before = llm->stats();
    EXPECT_EQ(answer(*llm, greedy(prompt, 60))[0].token_ids, successors(prompt.back(), 60));
    const LlmStats stats = llm->stats();
    EXPECT_GE((stats.accepted_tokens - before.accepted_tokens) * 100, (stats.draft_tokens - before.draft_tokens) * 95);
    EXPECT_LE(stats.steps - before.steps, 18u) << "five tokens a step";
  }
  expect_clean(*llm);
}

// A head that looks at nothing but the model's states: each sequence has its own, in its own order, however prompts are
// cut and whoever is beside it.
TEST(LlmHead, GuessesFromTheStatesAlone) {
  const Pair pair(successor_target(kStructuredVocab), states_head(kStructuredVocab));
  LlmOptions options = pair.options(true);
  options.draft_tokens = 1;
  options.engine.max_step_tokens = 24;
  const std::unique_ptr<Llm> llm = pair.llm(options);
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt = successors(40 * i, static_cast<size_t>(1 + 9 * i));
    prompt.push_back(31 * i + 2);
    requests.push_back(greedy(prompt, 60));
  }
  std::vector<std::shared_ptr<Generation>> running = submit_together(*llm, requests);
  for (int32_t i = 0; i < 8; ++i)
    EXPECT_EQ(collect(*running[static_cast<size_t>(i)])[0].token_ids, successors(31 * i + 2, 60));
  const LlmStats stats = llm->stats();
  EXPECT_GT(stats.draft_tokens, 100u);
  EXPECT_GE(stats.accepted_tokens * 100, stats.draft_tokens * 97);
  running.clear();
  expect_clean(*llm);
}

// With the model's files and the head's alone, as the commands load them.
TEST(LlmHead, IsLoadedBesideItsModel) {
  const Pair pair = Pair::successors(0);
  LlmOptions options = pair.options(true);
  const std::unique_ptr<Llm> llm = Llm::load(options);
  EXPECT_EQ(answer(*llm, greedy({9}, 40))[0].token_ids, successors(9, 40));
  EXPECT_GT(llm->stats().accepted_tokens, 20u);
  expect_clean(*llm);
}

// The model may be a GGUF file: then the embedding's rows come from that.
TEST(LlmHead, BesideAGgufModel) {
  const TempDir folder;
  MadeModel head = random_head(11, 80);
  head.extra = R"(, "draft_vocab_size": 80, "eagle_aux_hidden_state_layer_ids": [0, 1, 1])";
  head.write(folder / "head");
  LlmOptions options = tiny_options("gguf-q8_0-llama3");
  options.speculate = Speculation::off;
  const std::unique_ptr<Llm> plain = Llm::load(options);
  options.speculate = Speculation::draft;
  options.draft_model = (folder / "head").string();
  options.draft_tokens = 3;
  const std::unique_ptr<Llm> llm = Llm::load(options);
  for (int32_t i = 0; i < 4; ++i)
    expect_equal(answer(*llm, greedy({i, 3 * i + 1}, 30)), answer(*plain, greedy({i, 3 * i + 1}, 30)),
                 static_cast<size_t>(i));
  EXPECT_GT(llm->stats().drafts, 0u);
  EXPECT_GT(llm->stats().draft_steps, 0u);
  expect_clean(*llm);
}

// A beginning from the prefix cache has no states: the head begins behind it, and guesses as well.
TEST(LlmHead, BeginsBehindACachedPrefix) {
  const Pair pair = Pair::successors(0);
  LlmOptions options = pair.options(true);
  options.overlap = false;
  const std::unique_ptr<Llm> llm = pair.llm(options);
  const std::vector<int32_t> prompt = successors(40, 50);
  answer(*llm, greedy(prompt, 8));
  const LlmStats before = llm->stats();
  EXPECT_EQ(answer(*llm, greedy(prompt, 40))[0].token_ids, successors(prompt.back(), 40));
  const LlmStats stats = llm->stats();
  EXPECT_GE(stats.prefix_hits - before.prefix_hits, 48u);
  EXPECT_LE(stats.steps - before.steps, 12u);
  expect_clean(*llm);
}

// A text longer than the head's context: it goes on with the end of the text.
TEST(LlmHead, BeginsAnewWhereItsContextEnds) {
  const Pair pair = Pair::successors(0);
  LlmOptions options = pair.options(true);
  options.overlap = false;
  EngineOptions head = options.engine;
  head.max_model_len = 64;
  const std::unique_ptr<Llm> llm = pair.llm(options, head);
  EXPECT_EQ(answer(*llm, greedy({9}, 180))[0].token_ids, successors(9, 180));
  EXPECT_LE(llm->stats().steps, 60u);
  expect_clean(*llm);
}

// A head has blocks of its own, and may have fewer than the sequences want.
TEST(LlmHead, WithFewBlocks) {
  const Pair pair = Pair::successors(5);
  const LlmOptions options = pair.options(true);
  EngineOptions few = options.engine;
  few.kv_blocks = 18;
  few.max_model_len = 64;
  const std::unique_ptr<Llm> plain = pair.llm(pair.options(false)), llm = pair.llm(options, few);
  std::mt19937 random(31);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(random_request(random, 100, 80));
  std::vector<std::shared_ptr<Generation>> running = submit_together(*llm, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_equal(collect(*running[i]), answer(*plain, requests[i]), i);
  EXPECT_GT(llm->stats().accepted_tokens, 0u);
  running.clear();
  expect_clean(*llm);
}

// Guesses that are wrong, and steps of the head that fail, cost guesses and nothing else.
TEST(LlmHead, ThatKnowsNothingOrFails) {
  const MadeModel target = random_target(3);
  const Pair pair(target, random_head(11, 80));
  LlmOptions options = pair.options(true);
  const std::unique_ptr<Llm> plain = pair.llm(pair.options(false)), llm = pair.llm(options);
  Backend& device = EngineInternals::device(*pair.last_head);
  for (int32_t i = 0; i < 12; ++i) {
    if (i % 3 == 1) device.inject_failure();
    GenerationRequest request = greedy({i, 2 * i, 3 * i + 1}, 40);
    if (i % 2 == 1) request.sampling.temperature = 0.9f;
    request.sampling.seed = static_cast<uint64_t>(i);
    expect_equal(answer(*llm, request), answer(*plain, request), static_cast<size_t>(i));
  }
  EXPECT_GT(llm->stats().drafts, 0u);
  EXPECT_LT(llm->stats().accepted_tokens, llm->stats().draft_tokens / 4);
  EXPECT_EQ(llm->stats().failed_steps, 0u);
  expect_clean(*llm);
}

// As many guesses as pay: where none do, the text is the same.
TEST(LlmHead, AsManyGuessesAsPay) {
  const Pair pair = Pair::successors(3);
  LlmOptions options = pair.options(true);
  options.draft_tokens = 0;
  const std::unique_ptr<Llm> plain = pair.llm(pair.options(false)), llm = pair.llm(options);
  std::mt19937 random(29);
  for (size_t i = 0; i < 12; ++i) {
    const GenerationRequest request = random_request(random, 40, 40);
    expect_equal(answer(*llm, request), answer(*plain, request), i);
  }
  expect_clean(*llm);
}

// Layers of the model's own guess (MTP): right, whatever the prompt; of random ones nothing comes true, and answers are
// the same.
TEST(LlmHead, MtpLayersOfTheModelItself) {
  for (const bool knows : {true, false}) {
    const TempDir folder;
    (knows ? successor_mimo(kStructuredVocab) : random_mimo(5)).write(folder / "model");
    LlmOptions options = structured_options();
    options.engine.model = (folder / "model").string();
    options.overlap = false;
    options.speculate = Speculation::off;
    const std::unique_ptr<Llm> plain = Llm::load(options);
    options.speculate = Speculation::mtp;
    options.draft_tokens = 4;
    options.engine.kv_blocks = 48;
    const std::unique_ptr<Llm> llm = Llm::load(options);
    std::vector<GenerationRequest> requests;
    for (int32_t i = 1; i < 12; ++i) {
      GenerationRequest request = greedy({i, 5 * i, 31, 7 * i}, 60);
      if (i % 3 == 0) request.sampling.temperature = 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
      requests.push_back(request);
    }
    std::vector<std::shared_ptr<Generation>> running = submit_together(*llm, requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_equal(collect(*running[i]), answer(*plain, requests[i]), i);
    const LlmStats stats = llm->stats();
    EXPECT_GT(stats.drafts, 0u);
    if (knows) {
      EXPECT_GT(stats.accepted_tokens * 2, stats.draft_tokens);
    }
    running.clear();
    expect_clean(*llm);
  }
  LlmOptions without = structured_options();
  without.speculate = Speculation::mtp;
  expect_error(ErrorKind::declined, "has no MTP layers", [&] { Llm::load(without); });
}

TEST(LlmHead, OfAnotherModelIsDeclined) {
  const Pair pair(random_target(3), successor_head(kStructuredVocab, 0));
  LlmOptions options = pair.options(true);
  expect_error(ErrorKind::declined, "it reads an embedding of 331 tokens by 64", [&] { Llm::load(options); });
  options.engine.model = fixture_model("llama-bf16-tied");
  expect_error(ErrorKind::declined, "enters layer 2 was not made for a model of 2 layers", [&] { Llm::load(options); });
}

}  // namespace
}  // namespace ingot::testing
