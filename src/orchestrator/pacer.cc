#include "orchestrator/pacer.h"

#include <algorithm>
#include <limits>

namespace ingot {
namespace {

constexpr int32_t kFewest = 2;    // rows: a prompt always moves on
constexpr int32_t kProbe = 32;    // mixed steps after which one goes without prefill, to see what that costs by now
constexpr int32_t kUnknown = 32;  // rows beside streams before anything was measured
constexpr int32_t kFirst = 64;    // rows of the very first step, from which the rest is learned
// Without streams a step may be long, but a new request or a cancellation should not wait for it much longer than this.
constexpr double kLongestUs = 150e3;

constexpr int32_t kRowTile = 8;  // devices compute rows in tiles of this many: a started tile is paid for whole

constexpr int64_t kFar = 512;           // tokens before the rows, from which reading them may show
constexpr int32_t kMostUndivided = 32;  // rows: a known prompt leaves less than a block of them
constexpr double kReadings = 3;         // that rows may cost to be not worth another

constexpr double kGapKept = 0.9995;  // of a gap's length, a step

constexpr double kRowShare = 0.3;  // of a row's time, that one more costs before anything was measured

// Follows the median of the samples by small steps: a step that was held up by something else on the machine moves it
// no further than any other.
void follow(double& value, double sample) {
  if (value == 0)
    value = sample;
  else
    value *= sample > value ? 1.05 : 1 / 1.05;
}

}  // namespace

Pacer::Pacer(double target_ms, int32_t max_seqs, int32_t max_step_tokens)
    : target_us_(target_ms * 1000),
      max_step_tokens_(max_step_tokens),
      decode_us_(static_cast<size_t>(max_seqs) + 1, 0.0) {}

double Pacer::decode_us(int32_t rows) const {
  // The nearest number of rows that was seen; a larger batch costs at least as much as a smaller one.
  const int32_t last = static_cast<int32_t>(decode_us_.size()) - 1;
  for (int32_t distance = 0; distance <= last; ++distance) {
    if (rows - distance >= 1 && decode_us_[rows - distance] > 0) return decode_us_[rows - distance];
    if (rows + distance <= last && decode_us_[rows + distance] > 0)
      return decode_us_[rows + distance] * rows / (rows + distance);
  }
  return 0;
}

// Between two that are known as the crow flies, beyond the last as it went before.
double Pacer::expected_us(int32_t rows) const {
  int32_t below = rows, above = rows + 1;
  while (below > 0 && expected_[below] == 0) --below;
  if (below == rows) return expected_[rows];
  while (above <= kMostRows && expected_[above] == 0) ++above;
  if (below == 0) return above <= kMostRows ? expected_[above] : 0;
  if (above > kMostRows) {
    above = below--;
    while (below > 0 && expected_[below] == 0) --below;
    if (below == 0) return expected_[above] * (1 + kRowShare * (rows - above) / above);
  }
  return expected_[below] + (expected_[above] - expected_[below]) * (rows - below) / (above - below);
}

double Pacer::rows_us(int32_t rows) const {
  int32_t below = rows, above = rows + 1;  // the nearest that were seen
  while (below > 0 && rows_[below].us == 0) --below;
  while (above <= kMostRows && rows_[above].us == 0) ++above;
  const double most = above <= kMostRows ? rows_[above].us : std::numeric_limits<double>::max();
  if (below == rows) return rows_[rows].us;
  const double expected = expected_us(rows);
  if (below == 0) return expected > 0 ? std::min(expected, most) : above <= kMostRows ? most : 0;
  const double least = rows_[below].us;
  if (expected > 0) return std::clamp(least + expected - expected_us(below), least, std::max(least, most));
  double slope = kRowShare * least / below;
  if (above <= kMostRows) {
    slope = std::max(0.0, most - least) / (above - below);
  } else {  // as it went before
    int32_t before = below - 1;
    while (before > 0 && rows_[before].us == 0) --before;
    if (before > 0) slope = std::max((least - rows_[before].us) / (below - before), 0.1 * slope);
  }
  return least + slope * (rows - below);
}

// Smoother than follow(): numbers of rows are compared with each other, and a lucky one must not win by noise. The
// first of its size may have cost the device preparations, so what was thought before counts as much.
void Pacer::learn_rows(int32_t rows, double run_us) {
  if (rows < 1 || rows > kMostRows || run_us <= 0) return;
  const double thought = rows_us(rows);
  Price& price = rows_[rows];
  ++price.samples;
  if (thought == 0) {
    price.us = run_us;
    return;
  }
  const double share = std::max(0.1, 1.0 / (price.samples + 1));
  price.us = thought + share * std::clamp(run_us - thought, -0.5 * thought, 0.5 * thought);
}

void Pacer::expect_rows(int32_t rows, double run_us) {
  if (rows >= 1 && rows <= kMostRows) expected_[rows] = run_us;
}

int32_t Pacer::prefill_rows(int32_t decode_rows, int32_t prompts) const {
  if (decode_rows == 0) {
    if (prefill_us_ == 0) return std::min(kFirst, max_step_tokens_);
    const double rows = kLongestUs / prefill_us_;
    return static_cast<int32_t>(std::clamp<double>(rows, std::min(kUnknown, max_step_tokens_), max_step_tokens_));
  }
  if (mixed_steps_ >= kProbe) return 0;
  const double decode = decode_us(decode_rows);
  if (prefill_us_ == 0 || decode == 0) return std::min(kUnknown, max_step_tokens_);
  const double crowd = prompts > 1 ? static_cast<double>(prompts - 1) / decode_rows : 0;  // beyond the first
  const double stretch = std::min(kStretch + crowd, kMostStretch);
  const double target = target_us_ > 0 ? target_us_ : stretch * decode;
  const auto rows =
      static_cast<int32_t>(std::clamp<double>((target - decode) / prefill_us_, kFewest, max_step_tokens_));
  const int32_t whole_tiles = (decode_rows + rows) / kRowTile * kRowTile - decode_rows;
  return std::min(rows >= 2 * kRowTile ? whole_tiles : rows, max_step_tokens_);
}

// In the time t of a step, with a gap g before each: all rows give a token in t + g, or the free ones in t and the
// others in 2 t. More tokens a second is better.
bool Pacer::waiting_pays(int32_t guided_rows, int32_t free_rows) const {
  const double step = decode_us(guided_rows + free_rows);
  if (guided_rows == 0) return false;
  return step == 0 || guided_rows * (step - gap_us_) > 2 * free_rows * gap_us_;
}

// A gap that was long once keeps everybody from waiting, so that none is measured any more: it is forgotten by and by,
// and the first one, which nothing was known before, is not believed so far.
void Pacer::learn_gap(double gap_us, double drafting_us, double run_us) {
  if (gap_us <= drafting_us) return;
  const double idle_us = gap_us - drafting_us;
  follow(gap_us_, gap_us_ == 0 ? std::min(idle_us, run_us / 2) : idle_us);
}

void Pacer::learn(int32_t decode_rows, int32_t prefill_rows, double run_us, int64_t read) {
  if (run_us <= 0) return;
  gap_us_ *= kGapKept;
  if (prefill_rows == 0) {
    if (decode_rows > 0) follow(decode_us_[decode_rows], run_us);
    mixed_steps_ = 0;
    return;
  }
  mixed_steps_ = decode_rows > 0 ? mixed_steps_ + 1 : 0;
  const double rest = run_us - (decode_rows > 0 ? decode_us(decode_rows) : 0);
  if (rest <= 0) return;
  follow(prefill_us_, rest / prefill_rows);
  if (read < kFar)
    follow(row_us_, rest / prefill_rows);
  else if (decode_rows > 0 && row_us_ > 0)
    follow(read_us_, std::max(rest - row_us_ * prefill_rows, 0.0) / static_cast<double>(read));
}

void Pacer::expect_reading(double us_per_token) { follow(expected_read_us_, us_per_token); }

bool Pacer::undivided(int32_t rows, int64_t read) const {
  if (target_us_ > 0 || rows > kMostUndivided) return false;
  const double row_us = row_us_ > 0 ? row_us_ : prefill_us_;
  const double all_read_us = (read_us_ > 0 ? read_us_ : expected_read_us_) * static_cast<double>(read);
  return all_read_us > 0 && rows * row_us <= kReadings * all_read_us;
}

}  // namespace ingot
