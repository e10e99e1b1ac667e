#include "orchestrator/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ingot/tokenizer.h"

namespace ingot {
namespace {

struct Candidate {
  const Sequence* parent = nullptr;
  TokenLogprob token;
  double logprob = 0;  // of the whole beam
};

bool is_end(const Request& request, int32_t token) {
  const std::vector<int32_t>& ids = request.spec.sampling.stop_token_ids;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Longer beams have lower logprobs; the length penalty makes them comparable.
double rank(const Request& request, double logprob, int64_t generated) {
  return logprob / std::pow(static_cast<double>(std::max<int64_t>(generated, 1)), request.spec.length_penalty);
}

double rank(const Sequence& beam) { return rank(*beam.request, beam.logprob, beam.generated()); }

std::shared_ptr<Sequence> extend(const Candidate& candidate, std::shared_ptr<Sequence> child) {
  const Sequence& parent = *candidate.parent;
  child->tokens.push_back(candidate.token.token);
  child->logprob = candidate.logprob;
  child->scores = parent.scores;
  TokenScore score{
      .token = candidate.token.token, .logprob = candidate.token.logprob, .rank = 1, .top = parent.candidates->top};
  for (const TokenLogprob& other : score.top) score.rank += other.logprob > candidate.token.logprob;
  child->scores.push_back(std::move(score));
  return child;
}

// The most likely continuations of all beams; ties go to the earlier beam.
std::vector<Candidate> gather(const Request& request) {
  std::vector<Candidate> all;
  for (const auto& beam : request.sequences)
    for (const TokenLogprob& token : beam->candidates->top)
      all.push_back({beam.get(), token, beam->logprob + token.logprob});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });
  const size_t most = 2 * static_cast<size_t>(request.width);
  if (all.size() > most) all.resize(most);
  return all;
}

// Keeps the `width` best finished beams.
void keep_finished(Request& request, std::shared_ptr<Sequence> beam) {
  auto& finished = request.finished_beams;
  finished.push_back(std::move(beam));
  std::stable_sort(finished.begin(), finished.end(), [](const auto& a, const auto& b) { return rank(*a) > rank(*b); });
  if (finished.size() > static_cast<size_t>(request.width)) finished.pop_back();
}

// Whether no running beam can still overtake the finished ones.
bool decided(const Request& request) {
  if (request.finished_beams.size() < static_cast<size_t>(request.width)) return false;
  if (request.spec.early_stopping) return true;
  double best = -INFINITY;
  for (const auto& beam : request.sequences) best = std::max(best, rank(*beam));
  return rank(*request.finished_beams.back()) >= best;
}

}  // namespace

bool advance_beams(Request& request, Scheduler& scheduler) {
  const std::vector<Candidate> candidates = gather(request);
  std::vector<std::shared_ptr<Sequence>> next;
  for (size_t i = 0; i < candidates.size() && next.size() < static_cast<size_t>(request.width); ++i) {
    const Candidate& candidate = candidates[i];
    const Sequence& parent = *candidate.parent;
    const bool ended = is_end(request, candidate.token.token);
    const bool nothing_else = i + 1 == candidates.size() && next.empty() && request.finished_beams.empty();
    if (ended && !nothing_else) {
      if (parent.generated() + 1 < request.spec.sampling.min_tokens) continue;
      // An end that is not among the best `width` would not have survived as a beam either.
      if (i >= static_cast<size_t>(request.width)) continue;
    }
    if (!ended) {
      next.push_back(extend(candidate, scheduler.fork_of(parent, parent.known(), parent.computed)));
      next.back()->choice = static_cast<int32_t>(next.size()) - 1;
      continue;
    }
    auto beam = std::make_shared<Sequence>();
    beam->request = &request;
    beam->tokens = parent.tokens;
    beam = extend(candidate, std::move(beam));
    beam->finish = FinishReason::stop;
    beam->state = Sequence::State::finished;
    keep_finished(request, std::move(beam));
  }
  for (const auto& beam : request.sequences) scheduler.retire(beam);
  request.sequences = std::move(next);
  const bool full_length = request.sequences.empty() || request.sequences[0]->generated() >= request.max_tokens;
  const bool over = full_length || decided(request);
  for (const auto& beam : request.sequences) {
    if (!over) {
      scheduler.add(beam);
      continue;
    }
    scheduler.retire(beam);
    if (!full_length) continue;
    beam->finish = FinishReason::length;
    keep_finished(request, beam);
  }
  return over;
}

std::vector<const Sequence*> ranked_beams(const Request& request) {
  std::vector<const Sequence*> beams;
  for (const auto& beam : request.finished_beams) beams.push_back(beam.get());
  return beams;
}

std::string beam_text(const Sequence& beam, const Tokenizer& tokenizer) {
  const Request& request = *beam.request;
  std::vector<int32_t> ids(beam.tokens.begin() + request.prompt_len, beam.tokens.end());
  if (beam.finish == FinishReason::stop && !request.spec.include_stop) ids.pop_back();
  return tokenizer.decode(ids, request.spec.skip_special_tokens);
}

}  // namespace ingot
