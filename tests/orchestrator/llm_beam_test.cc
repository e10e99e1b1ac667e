#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "orchestrator/llm_rig.h"

namespace ingot::testing {
namespace {

struct Beam {
  std::vector<int32_t> ids;  // with the prompt
  double logprob = 0;
  bool ended = false;
};

// Beam search written down plainly: every beam computed from its first token on, in every round.
std::vector<Beam> plain_beam_search(Engine& engine, const std::vector<int32_t>& prompt, int width, int rounds,
                                    int32_t end, double penalty) {
  std::vector<Beam> beams = {{prompt}}, finished;
  const auto rank = [&](const Beam& b) { return b.logprob / std::pow(b.ids.size() - prompt.size(), penalty); };
  const auto better = [&](const Beam& a, const Beam& b) { return rank(a) > rank(b); };
  for (int round = 0; round < rounds; ++round) {
    std::vector<Beam> all;
    for (const Beam& beam : beams) {
      const std::vector<float> row = run_alone(engine, beam.ids).back();
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      for (size_t token = 0; token < row.size(); ++token) {
        Beam next = beam;
        next.ids.push_back(static_cast<int32_t>(token));
        next.logprob += row[token] - std::log(sum);
        next.ended = static_cast<int32_t>(token) == end;
        all.push_back(std::move(next));
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Beam& a, const Beam& b) { return a.logprob > b.logprob; });
    beams.clear();
    for (size_t i = 0; i < all.size() && beams.size() < static_cast<size_t>(width); ++i) {
      if (!all[i].ended)
        beams.push_back(all[i]);
      else if (i < static_cast<size_t>(width))
        finished.push_back(all[i]);
    }
    std::stable_sort(finished.begin(), finished.end(), better);
    if (finished.size() > static_cast<size_t>(width)) finished.resize(width);
    if (finished.size() == static_cast<size_t>(width) &&
        rank(finished.back()) >= rank(*std::min_element(beams.begin(), beams.end(), better)))
      return finished;
  }
  finished.insert(finished.end(), beams.begin(), beams.end());
  std::stable_sort(finished.begin(), finished.end(), better);
  finished.resize(width);
  return finished;
}

void compare(LlmOptions options, int width, int64_t prompt_length, double penalty, int neighbours) {
  const std::unique_ptr<Engine> engine = Engine::load(options.engine);
  const std::vector<int32_t> prompt = random_ids(prompt_length, engine->limits().vocab, 77);
  // An end token that beams do meet: the second choice of the first row.
  const std::vector<float> row = run_alone(*engine, prompt).back();
  std::vector<int32_t> order(row.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  const int32_t end = order[1];
  const std::vector<Beam> expected = plain_beam_search(*engine, prompt, width, 8, end, penalty);

  Llm llm(Engine::load(options.engine), nullptr, options);
  std::vector<std::shared_ptr<Generation>> others;
  for (int i = 0; i < neighbours; ++i)
    others.push_back(llm.submit(greedy(random_ids(20 + i, llm.limits().vocab, i), 30)));
  GenerationRequest request = greedy(prompt, 8);
  request.n = width;
  request.beam_search = true;
  request.length_penalty = penalty;
  request.sampling.stop_token_ids = {end};
  const std::shared_ptr<Generation> generation = llm.submit(request);
  const std::vector<Choice> choices = collect(*generation);
  ASSERT_EQ(choices.size(), expected.size());
  size_t tokens = 0;
  for (const Choice& choice : choices) tokens += choice.token_ids.size();
  EXPECT_EQ(generation->summary().completion_tokens, static_cast<int64_t>(tokens));
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::vector<int32_t> ids(expected[i].ids.begin() + prompt_length, expected[i].ids.end());
    EXPECT_EQ(choices[i].token_ids, ids) << "beam " << i << " of " << width;
    EXPECT_EQ(choices[i].finish, expected[i].ended ? FinishReason::stop : FinishReason::length);
  }
  for (const auto& other : others) collect(*other);
  expect_clean(llm);
}

TEST(LlmBeam, EqualsThePlainSearch) {
  for (const int width : {1, 2, 4})
    for (const double penalty : {1.0, 0.0, 2.0}) compare(tiny_options(), width, 13, penalty, 0);
}

TEST(LlmBeam, EqualsThePlainSearchAmongOthers) { compare(tiny_options(), 3, 16, 1.0, 5); }

TEST(LlmBeam, EqualsThePlainSearchWhenBlocksAreShort) {
  LlmOptions options = tiny_options();
  options.engine.kv_blocks = 12;
  compare(options, 4, 30, 1.0, 3);
}

TEST(LlmBeam, RefusesWhatWouldHaveNoEffect) {
  const LlmOptions options = tiny_options();
  Llm llm(Engine::load(options.engine), nullptr, options);
  GenerationRequest request = greedy({1, 2}, 4);
  request.beam_search = true;
  request.sampling.top_p = 0.5f;
  EXPECT_THROW(llm.submit(request), std::runtime_error);
}

}  // namespace
}  // namespace ingot::testing
