// Gemma 3 270M (Q4_K_M) against an fp32 reference of its dequantized weights (scripts/make_gemma_goldens.py). Only
// where INGOT_GEMMA_MODEL names the file: it is under terms of its own, so the set-up does not fetch it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

using nlohmann::json;

class Gemma : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* model = std::getenv("INGOT_GEMMA_MODEL");
    if (model == nullptr || *model == 0) GTEST_SKIP() << "INGOT_GEMMA_MODEL is not set: see docs/models.md";
    golden_ = json::parse(std::ifstream(std::string(INGOT_FIXTURES) + "/gemma_model/golden.json"));
    EngineOptions options;
    options.model = model;
    options.device = "cpu";
    options.max_model_len = golden_["context"];
    options.max_seqs = 1;
    options.max_logits_rows = 64;
    engine_ = Engine::load(options);
  }

  json golden_;
  std::unique_ptr<Engine> engine_;
};

// Every choice along the reference's text, but for near ties.
TEST_F(Gemma, GreedyChoicesAreTheReferences) {
  for (const json& prompt : golden_["prompts"]) {
    auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto greedy = prompt["greedy"].get<std::vector<int32_t>>();
    const size_t first = ids.size() - 1;
    ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
    const Logits logits = run_alone(*engine_, ids);
    for (size_t i = 0; i < greedy.size(); ++i) {
      const std::vector<float>& row = logits[first + i];
      const auto choice = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      if (prompt["margins"][i].get<double>() <= 0.5) continue;
      EXPECT_EQ(choice, greedy[i]) << prompt["text"] << " token " << i;
    }
  }
}

TEST_F(Gemma, PerplexityIsWithinOnePercent) {
  const auto ids = golden_["ids"].get<std::vector<int32_t>>();
  const size_t context = golden_["context"];
  const auto blocks = assign_blocks(engine_->limits(), 1, static_cast<int64_t>(context), 0)[0];
  StepBuilder builder(engine_->limits().block_size);
  double ours = 0, reference = 0;
  size_t tokens = 0;
  for (size_t window = 0; window < golden_["nll"].size(); ++window) {
    const auto text = std::span(ids).subspan(window * context, context);
    for (size_t done = 0; done < context;) {
      const size_t rows = std::min<size_t>(
          context - done, std::min(engine_->limits().max_step_tokens, engine_->limits().max_sample_rows));
      builder.clear();
      builder.add(text.subspan(done, rows), static_cast<int64_t>(done), blocks);
      for (size_t i = 0; i < rows && done + i + 1 < context; ++i)
        builder.sample(static_cast<int32_t>(i), {}, -1, {.kind = RowOutput::Kind::score, .target = text[done + i + 1]});
      for (const RowResult& row : engine_->run(builder.finish()).rows) ours -= row.logprob;
      done += rows;
    }
    reference += golden_["nll"][window].get<double>();
    tokens += context - 1;
  }
  const double ratio = std::exp((ours - reference) / static_cast<double>(tokens));
  EXPECT_NEAR(ratio, 1.0, 0.01) << "perplexity " << std::exp(ours / static_cast<double>(tokens)) << " instead of "
                                << std::exp(reference / static_cast<double>(tokens));
}

}  // namespace
}  // namespace ingot::testing
