#include "orchestrator/speculator.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

constexpr int64_t kLookPerStep = 4096;  // tokens of a prompt taken in at once
constexpr int64_t kMostListWords = 64;  // of a request: each row of a draft brings its lists along
// What a draft must promise. Times are known to a few percent; and what waits for its tokens keeps all others from
// being submitted ahead, which costs the more the more there are.
double least_gain(int32_t rows) { return 1.04 + 0.01 * rows; }
constexpr int64_t kKept = 4096;         // tokens of an answer
constexpr size_t kLogTokens = 1 << 15;  // of a client
constexpr size_t kClients = 64;

RecentAnswers::Client client_of(const Sequence& sequence) {
  return {sequence.request->spec.client, sequence.request->spec.cache_salt};
}

// How likely the next token is what followed `length` tokens before, for a sequence of which nothing is known.
double prior_of(int32_t length) { return length >= 8 ? 0.8 : length >= 5 ? 0.6 : 0.4; }

}  // namespace

void RecentAnswers::add(const Client& client, std::span<const int32_t> answer) {
  Log& log = logs_[client];
  log.used = ++uses_;
  log.tokens.insert(log.tokens.end(), answer.begin(), answer.end());
  log.tokens.push_back(-1);  // no text goes on here
  if (log.tokens.size() > kLogTokens) {
    log.tokens.erase(log.tokens.begin(), log.tokens.end() - static_cast<int64_t>(kLogTokens / 2));
    log.index.clear();
  }
  log.index.extend(log.tokens, std::ssize(log.tokens));
  if (logs_.size() > kClients)
    logs_.erase(std::ranges::min_element(logs_, {}, [](const auto& entry) { return entry.second.used; }));
}

const RecentAnswers::Log* RecentAnswers::of(const Client& client) {
  const auto found = logs_.find(client);
  if (found == logs_.end()) return nullptr;
  found->second.used = ++uses_;
  return &found->second;
}

bool Speculator::may_draft(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  return kind_ != Speculation::off && request.spec.speculate && !request.spec.beam_search && !sequence.guide &&
         request.max_tokens > 1 && request.list_words <= kMostListWords;
}

Speculator::Guess Speculator::guess(Sequence& sequence) {
  Guess guess{.sequence = &sequence};
  const std::span<const int32_t> text = sequence.tokens;
  const int64_t most =
      std::min<int64_t>({kMostDraft, sequence.request->max_tokens - sequence.generated() - sequence.in_flight - 1,
                         limits_.max_model_len - sequence.length()});
  if (most < 1) return guess;
  sequence.index.extend(text, kLookPerStep);
  std::span<const int32_t> list = text;
  TokenIndex::Match match = sequence.index.find(text, text);
  if (kind_ == Speculation::suffix) {
    if (const RecentAnswers::Log* log = recent_.of(client_of(sequence))) {
      const TokenIndex::Match other = log->index.find(log->tokens, text);
      if (other.length > match.length) {
        match = other;
        list = log->tokens;
      }
    }
  }
  if (match.length == 0) return guess;
  guess.rate = sequence.acceptance.rate(prior_of(match.length));
  for (auto i = match.end; std::ssize(guess.tokens) < most; ++i) {
    // Past the end of the text a repetition goes on in its own guesses.
    const int32_t token = i < std::ssize(list)         ? list[static_cast<size_t>(i)]
                          : list.data() == text.data() ? guess.tokens[static_cast<size_t>(i - std::ssize(list))]
                                                       : -1;
    if (token < 0) break;
    guess.tokens.push_back(token);
  }
  return guess;
}

// The draft tokens of all, most promising first: as many as give the most tokens in a step's time.
void Speculator::choose(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) const {
  if (fixed_ > 0) {
    for (Guess& guess : guesses) guess.taken = std::min(fixed_, static_cast<int32_t>(guess.tokens.size()));
    return;
  }
  std::vector<std::pair<double, Guess*>> gains;
  for (Guess& guess : guesses) {
    double chance = 1;
    for (size_t i = 0; i < guess.tokens.size(); ++i) gains.emplace_back(chance *= guess.rate, &guess);
  }
  std::ranges::stable_sort(gains, std::greater<>(), [](const auto& gain) { return gain.first; });
  const int32_t room = std::min({limits_.max_sample_rows, limits_.max_step_tokens, Pacer::kMostRows}) - rows;
  const double plain_us = room < 1 ? 0 : pacer.rows_us(rows);
  if (plain_us == 0) return;
  double tokens = rows, best = least_gain(rows) * rows / plain_us;
  size_t taken = 0;
  for (size_t i = 0; i < gains.size() && i < static_cast<size_t>(room); ++i) {
    tokens += gains[i].first;
    const double speed = tokens / (pacer.rows_us(rows + static_cast<int32_t>(i) + 1) + pacer.gap_us());
    if (speed <= best) continue;
    best = speed;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i) ++gains[i].second->taken;
}

void Speculator::propose(const std::vector<Sequence*>& due, int32_t rows, const Pacer& pacer) {
  std::vector<Guess> guesses;
  for (Sequence* sequence : due) {
    sequence->waits_for_draft = false;
    if (Guess found = guess(*sequence); !found.tokens.empty()) guesses.push_back(std::move(found));
  }
  choose(guesses, rows, pacer);
  for (Guess& guess : guesses) {
    if (guess.taken == 0) guess.sequence->acceptance.fade();
    guess.tokens.resize(static_cast<size_t>(guess.taken));
    guess.sequence->draft = std::move(guess.tokens);
  }
}

void Speculator::look(Sequence& sequence, int32_t rows, const Pacer& pacer) {
  sequence.waits_for_draft = false;
  if (!may_draft(sequence)) return;
  if (sequence.in_flight == 0 || sequence.generated() == 0) {
    sequence.index.extend(sequence.tokens, kLookPerStep);
    return;
  }
  std::vector<Guess> guesses(1, guess(sequence));
  if (guesses[0].tokens.empty()) return;
  choose(guesses, rows, pacer);
  sequence.waits_for_draft = guesses[0].taken > 0;
  if (guesses[0].taken == 0) sequence.acceptance.fade();
}

void Speculator::keep(const Sequence& sequence) {
  if (kind_ != Speculation::suffix || !may_draft(sequence)) return;
  const std::span<const int32_t> answer = std::span(sequence.tokens).subspan(sequence.request->prompt_len);
  if (std::ssize(answer) >= TokenIndex::kLeast)
    recent_.add(client_of(sequence), answer.first(std::min<size_t>(answer.size(), kKept)));
}

}  // namespace ingot
