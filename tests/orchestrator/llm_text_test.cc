// Text from the default model: streaming, stop strings, bad words, end tokens.
#include <gtest/gtest.h>

#include <set>

#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

class LlmText : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    LlmOptions options;
    options.engine.model = default_model();
    if (options.engine.model.empty()) return;
    options.engine.max_seqs = 8;
    options.engine.max_model_len = 512;
    options.engine.kv_blocks = 128;
    llm_ = Llm::load(options).release();
  }
  static void TearDownTestSuite() {
    if (!llm_) return;  // there is no model
    expect_clean(*llm_);
    delete llm_;
  }
  void SetUp() override {
    if (!llm_) GTEST_FAIL() << "the default model is missing: run scripts/fetch_model.sh";
  }

  static GenerationRequest request(const std::string& text, int64_t max_tokens) {
    GenerationRequest request = greedy(llm_->tokenizer()->encode(text), max_tokens);
    request.ignore_eos = false;
    return request;
  }
  static std::string text_of(GenerationRequest r) { return answer(*llm_, std::move(r))[0].text; }

  static Llm* llm_;
};
Llm* LlmText::llm_ = nullptr;

const char* const kQuestion = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";

TEST_F(LlmText, EndsAtTheModelsEndToken) {
  const Choice choice = answer(*llm_, request(kQuestion, 100))[0];
  EXPECT_EQ(choice.text, "The capital of France is Paris.");
  EXPECT_EQ(choice.finish, FinishReason::stop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(choice.stop_reason));
  EXPECT_TRUE(llm_->tokenizer()->is_end(choice.token_ids.back()));
}

TEST_F(LlmText, StopStringEndsTheTextBeforeIt) {
  GenerationRequest r = request(kQuestion, 100);
  r.stop = {"nowhere", " of Fra"};
  const Choice choice = answer(*llm_, r)[0];
  EXPECT_EQ(choice.text, "The capital");
  EXPECT_EQ(choice.finish, FinishReason::stop);
  EXPECT_EQ(std::get<std::string>(choice.stop_reason), " of Fra");
  r.include_stop = true;
  EXPECT_EQ(text_of(r), "The capital of Fra");
}

TEST_F(LlmText, StreamNeverHandsOutWhatAStopStringTakesBack) {
  GenerationRequest r = request(kQuestion, 100);
  r.stop = {"capital of Spain", "France is Paris"};
  const std::shared_ptr<Generation> generation = llm_->submit(r);
  std::string text;
  while (!generation->done() || generation->wait(std::chrono::milliseconds(0))) {
    generation->wait(std::chrono::seconds(10));
    const bool done = generation->done();
    for (const ChoiceDelta& delta : generation->take()) text += delta.text;
    EXPECT_TRUE(std::string("The capital of ").starts_with(text)) << text;
    if (done) break;
  }
  EXPECT_EQ(text, "The capital of ");
}

TEST_F(LlmText, StopTokenIsToldWhenItWasNamed) {
  GenerationRequest r = request(kQuestion, 100);
  const int32_t paris = llm_->tokenizer()->encode(" Paris", {.add_special = false})[0];
  r.sampling.stop_token_ids = {paris};
  const Choice choice = answer(*llm_, r)[0];
  EXPECT_EQ(choice.text, "The capital of France is");
  EXPECT_EQ(std::get<int32_t>(choice.stop_reason), paris);
}

TEST_F(LlmText, MinTokensHoldsOffEveryKindOfStop) {
  GenerationRequest r = request(kQuestion, 30);
  r.sampling.min_tokens = 20;
  EXPECT_GE(answer(*llm_, r)[0].token_ids.size(), 20u);
  r.stop = {"capital"};
  EXPECT_GE(answer(*llm_, r)[0].token_ids.size(), 20u);
}

TEST_F(LlmText, IgnoreEosGoesOn) {
  GenerationRequest r = request(kQuestion, 40);
  r.ignore_eos = true;
  const Choice choice = answer(*llm_, r)[0];
  EXPECT_EQ(choice.token_ids.size(), 40u);
  EXPECT_EQ(choice.finish, FinishReason::length);
}

TEST_F(LlmText, BadWordsDoNotAppear) {
  GenerationRequest r = request(kQuestion, 30);
  r.bad_words = {"Paris"};
  EXPECT_EQ(text_of(r).find("Paris"), std::string::npos) << text_of(r);
}

TEST_F(LlmText, SpecialTokensAreTextOnlyWhenAskedFor) {
  GenerationRequest r = request(kQuestion, 60);
  r.skip_special_tokens = false;
  EXPECT_EQ(text_of(r), "The capital of France is Paris.") << "the token that ends it is never part of the text";
  r.include_stop = true;
  EXPECT_EQ(text_of(r), "The capital of France is Paris.<|im_end|>");
}

TEST_F(LlmText, RandomSeedsDiffer) {
  GenerationRequest r = request("Once upon a time", 16);
  r.sampling.temperature = 1.0f;
  r.random_seed = true;
  std::set<std::string> texts;
  for (int i = 0; i < 4; ++i) texts.insert(text_of(r));
  EXPECT_GT(texts.size(), 1u);
}

}  // namespace
}  // namespace ingot::testing
