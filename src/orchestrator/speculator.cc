#include "orchestrator/speculator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace ingot {
namespace {

constexpr int64_t kMostListWords = 64;  // of a request: each row of a draft brings its lists along
// What a draft must promise. Times are known to a few percent; and what waits for its tokens keeps all others from
// being submitted ahead, which costs the more the more there are.
double least_gain(int32_t rows, bool shares) { return 1.04 + 0.01 * (shares ? std::min(rows, 6) : rows); }
// Tokens of which the result is known, before all sequences are guessed for at once where that has a price.
constexpr double kKnown = 10;

}  // namespace

bool Speculator::may_draft(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  return drafter_ && request.spec.speculate && !request.spec.beam_search && request.max_tokens > 1 &&
         request.list_words <= kMostListWords;
}

Guess Speculator::guess(Sequence& sequence) {
  Guess guess{.sequence = &sequence};
  const int64_t most =
      std::min<int64_t>({kMostDraft, sequence.request->max_tokens - sequence.generated() - sequence.in_flight - 1,
                         limits_.max_model_len - sequence.length()});
  if (most >= 1) drafter_->offer(guess, static_cast<int32_t>(most));
  guess.rate = sequence.acceptance.rate(drafter_->shares() ? shared_.rate(guess.prior) : guess.prior);
  return guess;
}

// The draft tokens of all, most promising first: as many as give the most tokens in the time of guessing them and of
// the step.
void Speculator::choose(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) const {
  if (fixed_ > 0) {
    for (Guess& guess : guesses) guess.taken = std::min(fixed_, guess.most);
    return;
  }
  struct Gain {
    double chance;
    Guess* guess;
    int32_t place;  // in its draft
  };
  std::vector<Gain> gains;
  for (Guess& guess : guesses) {
    double chance = 1;
    for (int32_t i = 0; i < guess.most; ++i) gains.push_back({chance *= guess.rate, &guess, i});
  }
  std::ranges::stable_sort(gains, std::greater<>(), &Gain::chance);
  const int32_t room = std::min({limits_.max_sample_rows, limits_.max_step_tokens, Pacer::kMostRows}) - rows;
  const double plain_us = room < 1 ? 0 : pacer.rows_us(rows);
  if (plain_us == 0) return;
  double tokens = rows, best = least_gain(rows, drafter_->shares()) * rows / plain_us, guessing_us = 0;
  std::array<int32_t, kMostDraft> sequences{};  // that are guessed for, by place
  size_t taken = 0;
  for (size_t i = 0; i < gains.size() && i < static_cast<size_t>(room); ++i) {
    const Gain& gain = gains[i];
    int32_t& width = sequences[static_cast<size_t>(gain.place)];
    guessing_us += drafter_->token_us(width + 1) - drafter_->token_us(width);
    if (gain.place == 0) guessing_us += drafter_->begin_us(*gain.guess->sequence);
    ++width;
    tokens += gain.chance;
    const double step_us = pacer.rows_us(rows + static_cast<int32_t>(i) + 1) + pacer.gap_us();
    const double speed = tokens / (step_us + guessing_us);
    if (speed <= best) continue;
    best = speed;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i) ++gains[i].guess->taken;
}

// Takes what pays. Where guessing has a price and little is known of what comes of it, one sequence is tried first, of
// which most is computed already; it need not pay alone.
void Speculator::weigh(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) {
  choose(guesses, rows, pacer);
  if (unsure()) {
    const auto price = [this](const Guess& guess) {
      return guess.taken > 0 ? drafter_->begin_us(*guess.sequence) : std::numeric_limits<double>::max();
    };
    const auto tried = [](const Guess& guess) { return guess.sequence->tried_tokens > 0; };
    auto first = std::ranges::find_if(guesses, tried);
    if (first == guesses.end())
      first = std::ranges::min_element(guesses, {}, price);
    else
      first->taken = std::min(first->sequence->tried_tokens, first->most);
    for (auto guess = guesses.begin(); guess != guesses.end(); ++guess)
      if (guess != first) guess->taken = 0;
  }
  bool any = false;
  for (const Guess& guess : guesses) {
    any |= guess.taken > 0;
    guess.sequence->tried_tokens = 0;
    if (guess.taken == 0) guess.sequence->acceptance.fade();
  }
  if (!any && !guesses.empty()) shared_.fade();
}

bool Speculator::unsure() const { return drafter_->shares() && fixed_ == 0 && shared_.tries() < kKnown; }

void Speculator::propose(const std::vector<Sequence*>& due, int32_t rows, const Pacer& pacer) {
  reading_us_ = 0;
  std::vector<Guess> guesses;
  for (Sequence* sequence : due) {
    sequence->waits_for_draft = false;
    if (!allowed()) continue;
    if (Guess found = guess(*sequence); found.most > 0) guesses.push_back(std::move(found));
  }
  weigh(guesses, rows, pacer);
  std::erase_if(guesses, [](const Guess& guess) { return guess.taken == 0; });
  if (guesses.empty()) return;
  drafter_->fill(guesses);
  reading_us_ = drafter_->reading_us();
  credit_.invest(reading_us_);
  for (Guess& guess : guesses) {
    guess.tokens.resize(std::min(guess.tokens.size(), static_cast<size_t>(guess.taken)));
    guess.sequence->draft = std::move(guess.tokens);
  }
}

void Speculator::look(const std::vector<Sequence*>& sequences, int32_t rows, const Pacer& pacer) {
  std::vector<Guess> guesses;
  const auto decide = [&] {
    weigh(guesses, rows, pacer);
    for (const Guess& guess : guesses) {
      guess.sequence->waits_for_draft = guess.taken > 0;
      guess.sequence->tried_tokens = unsure() ? guess.taken : 0;
    }
    guesses.clear();
  };
  for (Sequence* sequence : sequences) {
    sequence->waits_for_draft = false;
    if (!may_draft(*sequence)) continue;
    if (sequence->in_flight == 0 || sequence->generated() == 0 || !allowed())
      drafter_->look(*sequence);
    else if (Guess found = guess(*sequence); found.most > 0)
      guesses.push_back(std::move(found));
    // Whoever waits keeps all others from being submitted ahead: it must pay by itself, if it can.
    if (!drafter_->shares() && !guesses.empty()) decide();
  }
  // One that is being tried has its token by now, and its draft goes with the next step.
  const auto tried = [](const Sequence* sequence) { return sequence->tried_tokens > 0; };
  if (!guesses.empty() && std::ranges::none_of(sequences, tried)) decide();
}

void Speculator::learn(Sequence& sequence, int32_t drafted, int32_t accepted) {
  sequence.acceptance.learn(drafted, accepted);
  shared_.learn(drafted, accepted);
}

void Speculator::settle(const Outcome& outcome, const Pacer& pacer) {
  if (outcome.streams < 1) return;
  if (!outcome.guessed) return credit_.pass(outcome.took_us);
  if (outcome.streams > Pacer::kMostRows) return;
  const double plain_us = pacer.rows_us(outcome.streams);
  if (plain_us > 0) credit_.settle(outcome.took_us, static_cast<double>(outcome.tokens) * plain_us / outcome.streams);
}

void Speculator::keep(const Sequence& sequence) {
  if (may_draft(sequence)) drafter_->keep(sequence);
}

}  // namespace ingot
