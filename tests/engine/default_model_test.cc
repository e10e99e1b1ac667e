// The default model against an fp32 reference of its dequantized weights (scripts/make_default_model_goldens.py), on
// each device.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/metal_mode.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  std::ifstream file(std::string(INGOT_FIXTURES) + "/default_model/" + name);
  return json::parse(file);
}

class DefaultModel : public ::testing::TestWithParam<std::string> {
 protected:
  // Loaded once a device. Of the software Metal device, which takes a second a step, as little is asked as shows it
  // right.
  void SetUp() override {
    ASSERT_FALSE(default_model().empty()) << "INGOT_DEFAULT_MODEL is not set: run through make test";
    if (engine_ != nullptr) return;
    test::metal_in_fast_mode();
    EngineOptions options;
    options.model = default_model();
    options.device = GetParam();
    options.max_model_len = little() ? 256 : 1024;
    options.max_seqs = little() ? 1 : 8;
    if (little()) options.max_step_tokens = 1;
    options.max_logits_rows = 64;
    engine_ = Engine::load(options);
    reference_error_ = largest_logit_error();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static bool little() { return GetParam() == "metal" && !soak(); }

  // Over all sampled columns of a short text.
  static double largest_logit_error() {
    const json reference = golden("logits.json");
    auto ids = reference["ids"].get<std::vector<int32_t>>();
    if (little()) ids.resize(4);
    const Logits logits = little() ? run_row_by_row(*engine_, ids) : run_as_served(*engine_, ids);
    const auto columns = reference["columns"].get<std::vector<int32_t>>();
    double most = 0;
    for (size_t r = 0; r < logits.size(); ++r)
      for (size_t c = 0; c < columns.size(); ++c)
        most = std::max(most, std::abs(logits[r][columns[c]] - reference["rows"][r][c].get<double>()));
    return most;
  }

  // Logprobs of `ids[1..]` in windows of their own; runs one window.
  double window_nll(std::span<const int32_t> ids) {
    const auto blocks = assign_blocks(engine_->limits(), 1, 1024, 0)[0];
    StepBuilder builder(engine_->limits().block_size);
    double nll = 0;
    for (size_t done = 0; done < ids.size();) {
      const size_t rows = std::min<size_t>(
          ids.size() - done, std::min(engine_->limits().max_step_tokens, engine_->limits().max_sample_rows));
      builder.clear();
      builder.add(ids.subspan(done, rows), static_cast<int64_t>(done), blocks);
      for (size_t i = 0; i < rows && done + i + 1 < ids.size(); ++i)
        builder.sample(static_cast<int32_t>(i), {}, -1, {.kind = RowOutput::Kind::score, .target = ids[done + i + 1]});
      for (const RowResult& row : engine_->run(builder.finish()).rows) nll -= row.logprob;
      done += rows;
    }
    return nll;
  }

  static std::unique_ptr<Engine> engine_;
  static double reference_error_;
};

std::unique_ptr<Engine> DefaultModel::engine_;
double DefaultModel::reference_error_ = 0;

TEST_P(DefaultModel, LogitsAreClose) {
  // 4-bit weights meet activations of 8 bits a block; the logits' own spread is 5.25.
  RecordProperty("largest_error", std::to_string(reference_error_));
  EXPECT_LT(reference_error_, 0.1 * golden("logits.json")["std"].get<double>());
}

// Every greedy choice along the reference's text is the reference's, but for near-ties: where its two best tokens are
// closer than twice our largest error. The texts run side by side, a token a step, as a server would decode them.
TEST_P(DefaultModel, GreedyChoicesAreTheReferences) {
  int choices = 0, ties = 0;
  json cases = golden("greedy.json")["cases"];
  const size_t most = little() ? 5 : 32;  // tokens of each text
  if (little()) cases = json::array({cases[1]});
  const auto blocks = assign_blocks(engine_->limits(), cases.size(), 256, 3);
  std::vector<Sequence> texts;
  for (const json& item : cases) {
    const std::vector<int32_t> prompt = item["prompt_ids"];
    std::vector<int32_t> answer = item["token_ids"];
    answer.resize(std::min(answer.size(), most));
    const std::vector<int32_t>& own = blocks[texts.size()];
    if (prompt.size() > 1) run_sequences(*engine_, {{{prompt.begin(), prompt.end() - 1}, own, 1 << 20, false}});
    Sequence text{prompt, own, 1, true, static_cast<int64_t>(prompt.size()) - 1};
    text.ids.insert(text.ids.end(), answer.begin(), answer.end() - 1);
    texts.push_back(std::move(text));
  }
  const std::vector<Logits> logits = run_sequences(*engine_, texts);
  for (size_t c = 0; c < cases.size(); ++c) {
    std::vector<int32_t> expected = cases[c]["token_ids"];
    expected.resize(std::min(expected.size(), most));
    ASSERT_EQ(logits[c].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i, ++choices) {
      const std::vector<float>& row = logits[c][i];
      const auto choice = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      if (choice == expected[i]) continue;
      ++ties;
      EXPECT_LE(cases[c]["gaps"][i].get<double>(), 2 * reference_error_)
          << cases[c]["name"] << ": token " << i << " is " << choice << " instead of " << expected[i];
    }
  }
  EXPECT_EQ(choices, static_cast<int>(cases.size() * most));
  EXPECT_LE(ties, choices / 10);
}

TEST_P(DefaultModel, PerplexityIsWithinOnePercent) {
  if (GetParam() == "metal") GTEST_SKIP() << "thousands of tokens, minutes on a software device";
  if (kSanitized && !soak()) GTEST_SKIP() << "numbers, which a sanitizer does not see";
  const json goldens = golden("perplexity.json");
  ASSERT_FALSE(goldens["texts"].empty());
  for (const json& text : goldens["texts"]) {
    const auto ids = text["ids"].get<std::vector<int32_t>>();
    for (const json& score : text["scores"]) {
      const size_t context = score["ctx"];
      if (context < 1024 && !soak()) continue;  // long windows show what short ones do
      double nll = 0;
      size_t tokens = 0;
      for (size_t at = 0; at + context <= ids.size(); at += context) {
        nll += window_nll(std::span(ids).subspan(at, context));
        tokens += context - 1;
      }
      const double expected = score["perplexity_full_windows"];
      EXPECT_EQ(tokens, score["tokens_full_windows"].get<size_t>());
      EXPECT_NEAR(std::exp(nll / static_cast<double>(tokens)) / expected, 1.0, 0.01) << "windows of " << context;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, DefaultModel, ::testing::Values("cpu"));
// With a sanitizer: minutes of compiling kernels.
INSTANTIATE_TEST_SUITE_P(Metal, DefaultModel, ::testing::ValuesIn(unless_sanitized<std::string>({"metal"}, {})));

}  // namespace
}  // namespace ingot::testing
