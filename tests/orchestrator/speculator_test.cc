// Whether guessing pays, on devices of made-up speed: time is counted, nothing is computed.
#include "orchestrator/speculator.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "soak.h"

namespace ingot {
namespace {

// What things take there, in microseconds.
struct World {
  int32_t streams = 16;
  double chance = 0.7;                      // of a guess to come true
  std::function<double(int32_t)> rows;      // a step
  double gap = 1500;                        // between two steps, where the first is waited for
  double guess_base = 600, guess_row = 15;  // a step of the draft model: one token of each sequence
  double read_row = 8;                      // a row of text that is new to it
  double noise = 0;                         // of every step, as a share
  bool known = true;                        // steps of all sizes were measured before
  double thought = 1;                       // what guesses are taken to cost, as a share of what they do

  double guess_us(int32_t sequences) const { return guess_base + guess_row * sequences; }
};

// Guesses that cost what they cost in that world, as DraftModel's do.
class WorldDrafter : public Drafter {
 public:
  explicit WorldDrafter(const World& world) : world_(world) {}

  void offer(Guess& guess, int32_t most) override {
    guess.most = most;
    guess.prior = 0.6;
  }
  void fill(std::span<Guess> guesses) override {
    took_us = reading_ = 0;
    std::ranges::stable_sort(guesses, {}, [this](const Guess& guess) { return unread(*guess.sequence); });
    int64_t budget = kMostRead;
    int32_t longest = 0;
    bool reads = false;
    for (Guess& guess : guesses) {
      const int64_t rows = std::min(budget, unread(*guess.sequence) + 1);
      budget -= rows;
      read_[guess.sequence] += rows;
      reads |= rows > 2;
      if (unread(*guess.sequence) > 0) continue;
      guess.tokens.assign(static_cast<size_t>(guess.taken), 0);
      read_[guess.sequence] = guess.sequence->known() - 1;
      longest = std::max(longest, guess.taken);
    }
    const double text_us = world_.guess_base + world_.read_row * static_cast<double>(kMostRead - budget);
    if (reads) reading_ = text_us;
    took_us = text_us;
    for (int32_t place = 1; place < longest; ++place) {
      const auto wide = std::ranges::count_if(guesses, [&](const Guess& g) { return std::ssize(g.tokens) > place; });
      took_us += world_.guess_us(static_cast<int32_t>(wide));
    }
  }
  bool shares() const override { return true; }
  double token_us(int32_t sequences) const override {
    return sequences == 0 ? 0 : world_.thought * world_.guess_us(sequences);
  }
  double begin_us(const Sequence& sequence) const override {
    const auto drafts = std::clamp<int64_t>((sequence.request->max_tokens - sequence.generated()) / 4, 1, 128);
    return world_.read_row * static_cast<double>(std::max<int64_t>(0, unread(sequence) - 1)) /
           static_cast<double>(drafts);
  }
  double reading_us() const override { return reading_; }

  void forget(const Sequence& sequence) { read_.erase(&sequence); }
  double took_us = 0;

 private:
  static constexpr int64_t kMostRead = 512;
  int64_t unread(const Sequence& sequence) const {
    const auto found = read_.find(&sequence);
    return sequence.known() - 1 - (found == read_.end() ? 0 : found->second);
  }

  const World& world_;
  std::map<const Sequence*, int64_t> read_;
  double reading_ = 0;
};

struct Came {
  double speed = 0;  // of what it is without guesses
  int64_t drafted = 0;
};

// So many seconds of streams that are always as many: who ends is followed by another. As StepLoop does it.
Came live(const World& world, double seconds, int64_t prompt = 130, int64_t answer = 255) {
  std::mt19937 random(11);
  std::normal_distribution<> normal;
  const auto timed = [&](double us) { return us * std::max(0.3, 1 + world.noise * normal(random)); };
  const auto drafter = std::make_shared<WorldDrafter>(world);
  EngineLimits limits{.max_step_tokens = 2048, .max_sample_rows = 256, .max_model_len = 1 << 20};
  Speculator speculator(drafter, 0, limits);
  Pacer pacer(0, 64, 2048);
  for (int32_t rows = 1; world.known && rows <= Pacer::kMostRows; rows *= 2) pacer.expect_rows(rows, world.rows(rows));
  std::vector<Request> requests(static_cast<size_t>(world.streams));
  std::vector<Sequence> sequences(requests.size());
  std::vector<Sequence*> all;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_tokens = answer;
    requests[i].prompt_len = prompt;
    sequences[i].request = &requests[i];
    all.push_back(&sequences[i]);
  }
  const auto begin = [&](Sequence& sequence, int64_t done) {
    sequence.tokens.assign(static_cast<size_t>(prompt + done), 0);
    sequence.acceptance = Acceptance();
    drafter->forget(sequence);
  };
  for (size_t i = 0; i < all.size(); ++i) begin(*all[i], static_cast<int64_t>(i) * answer / world.streams);

  double now = 0, plain = 0;  // what it took, and what its tokens take without guesses
  Came came;
  const double step_us = world.rows(world.streams) / world.streams;
  while (now < seconds * 1e6) {
    int32_t hopeful = 0;
    for (const Sequence* sequence : all) hopeful += sequence->waits_for_draft;
    const bool waited = pacer.waiting_pays(hopeful, world.streams - hopeful);
    const int32_t left_out = waited ? 0 : hopeful;
    // Those left out have their tokens by the next step, and their drafts go with it.
    std::vector<Sequence*> due;
    for (Sequence* sequence : all)
      if (waited || sequence->in_flight == 0) due.push_back(sequence);
    drafter->took_us = 0;
    if (!due.empty()) speculator.propose(due, world.streams - left_out, pacer);
    int32_t rows = 0, drafts = 0;
    std::vector<Sequence*> rowed;
    for (Sequence* sequence : all) {
      const bool out = !waited && sequence->waits_for_draft;
      sequence->in_flight = out ? 0 : 1;
      if (out) continue;
      rowed.push_back(sequence);
      rows += 1 + static_cast<int32_t>(sequence->draft.size());
      drafts += !sequence->draft.empty();
    }
    if (rows == 0) {
      for (Sequence* sequence : all) sequence->waits_for_draft = false;
      continue;
    }
    const double run = timed(world.rows(rows)), guessing = timed(drafter->took_us);
    const double gap = waited ? world.gap + guessing : std::max(0.0, guessing - run);
    now += run + gap;
    if (drafts == 0) pacer.learn(rows, 0, run);
    pacer.learn_rows(rows, run);
    if (waited) pacer.learn_gap(gap, guessing);
    int64_t tokens = 0;
    for (Sequence* sequence : rowed) {
      const auto drafted = static_cast<int32_t>(sequence->draft.size());
      int32_t accepted = 0;
      while (accepted < drafted && std::uniform_real_distribution<>()(random) < world.chance) ++accepted;
      sequence->tokens.resize(sequence->tokens.size() + 1 + static_cast<size_t>(accepted), 0);
      sequence->draft.clear();
      if (drafted > 0) speculator.learn(*sequence, drafted, accepted);
      came.drafted += drafted;
      tokens += 1 + accepted;
    }
    plain += static_cast<double>(tokens) * step_us;
    speculator.settle(
        {.streams = static_cast<int32_t>(rowed.size()) + left_out,
         .tokens = tokens,
         .took_us = run + std::max(0.0, gap - speculator.reading_us()) * (drafts > 0 || hopeful > 0 ? 1 : 0),
         .guessed = drafts > 0 || hopeful > 0},
        pacer);
    for (Sequence* sequence : rowed)
      if (sequence->generated() >= answer) begin(*sequence, 0);
    speculator.look(rowed, static_cast<int32_t>(rowed.size()), pacer);
  }
  came.speed = plain / now;
  return came;
}

// An H200, a model of 24B and one of 0.5B that guesses (docs/benchmarks.md).
double h200_rows(int32_t rows) {
  constexpr std::array<std::pair<int32_t, double>, 6> kSeen{
      {{1, 10540}, {8, 10980}, {16, 12130}, {32, 12510}, {64, 14690}, {128, 25000}}};
  for (size_t i = 1; i < kSeen.size(); ++i)
    if (const auto [below, least] = kSeen[i - 1]; rows <= kSeen[i].first)
      return least + (kSeen[i].second - least) * (rows - below) / (kSeen[i].first - below);
  return kSeen.back().second * rows / kSeen.back().first;
}

TEST(Speculator, PaysOnALargeGpuAtEveryWidth) {
  for (const int32_t streams : {1, 4, 16}) {
    const World world{.streams = streams, .rows = h200_rows, .noise = 0.02};
    const Came came = live(world, 20);
    EXPECT_GT(came.speed, streams == 1 ? 1.8 : streams == 4 ? 1.5 : 1.3) << streams;
  }
}

// Whatever rows, guesses, gaps and texts cost, and however rarely guesses come true.
TEST(Speculator, NeverLosesTwoPercent) {
  if (test::kSanitized) GTEST_SKIP() << "arithmetic alone, and much of it";
  std::mt19937 random(7);
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, std::uniform_real_distribution<>()(random));
  };
  for (int i = 0; i < (test::soak() ? 2000 : 24); ++i) {
    const double step = between(1000, 40000), row = step * between(0.001, 1);
    World world;
    world.streams = static_cast<int32_t>(between(1, 32));
    world.chance = std::uniform_real_distribution<>(0, 0.9)(random);
    world.rows = [=](int32_t rows) { return step + row * (rows - 1); };
    world.gap = step * between(0.003, 0.5);
    world.guess_base = step * between(0.02, 1);
    world.guess_row = world.guess_base * between(0.01, 0.5);
    world.read_row = world.guess_row * between(0.1, 1);
    world.noise = i % 2 == 0 ? 0 : 0.1;
    world.known = i % 3 != 0;
    if (i % 4 == 3) world.thought = between(0.05, 0.5);
    const int64_t prompt = static_cast<int64_t>(between(10, 4000));
    const Came came = live(world, 40, prompt, static_cast<int64_t>(between(16, 1000)));
    EXPECT_GT(came.speed, 0.98) << i << ": " << world.streams << " streams, chance " << world.chance << ", step "
                                << step << " row " << row << " gap " << world.gap << " guess " << world.guess_base
                                << " + " << world.guess_row << " read " << world.read_row << " prompt " << prompt;
  }
}

// With 16 streams whose second row costs as much as the first nothing can pay, and hardly anything is tried.
TEST(Speculator, LeavesAloneWhatCannotPay) {
  const World world{.rows = [](int32_t rows) { return 1000.0 * rows; }};
  const Came came = live(world, 60);
  EXPECT_GT(came.speed, 0.995);
  EXPECT_LT(came.drafted, 100);
}

// Guesses that never come true where steps are cheap to widen: a sequence is tried now and then, not all of them.
TEST(Speculator, TriesOneSequenceNowAndThen) {
  const World world{.chance = 0.02, .rows = h200_rows};
  const Came came = live(world, 120);
  EXPECT_GT(came.speed, 0.99);
  EXPECT_GT(came.drafted, 20) << "times may change";
}

}  // namespace
}  // namespace ingot
