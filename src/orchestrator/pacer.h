#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace ingot {

// Decides how many prefill rows may join a step that also carries running streams, so that the step stays within a
// target time. It learns what rows cost from the steps themselves.
class Pacer {
 public:
  // target_ms 0: kStretch times what the step would take without prefill.
  Pacer(double target_ms, int32_t max_seqs, int32_t max_step_tokens);

  // Most prefill rows beside `decode_rows` streams; without streams a step may take longer. Now and then 0.
  // The more prompts wait for each decoding sequence, the longer the step may get.
  int32_t prefill_rows(int32_t decode_rows, int32_t prompts = 0) const;
  // `read`: tokens before the prefill rows, whose K and V they read.
  void learn(int32_t decode_rows, int32_t prefill_rows, double run_us, int64_t read = 0);
  // What reading seems to cost as long as no such step has told: what it takes of a step without prefill rows.
  void expect_reading(double us_per_token);
  // Whether the last rows of a prompt go into one step beside streams, although they are more than prefill_rows().
  // Reading what is before them may cost more than they do, and each further step would read it once more.
  bool undivided(int32_t rows, int64_t read) const;

  // Whether to wait for the step in flight before the next is submitted, although `free_rows` of it could go on at
  // once: its `guided_rows` need their tokens on the host first, and would miss the next step.
  bool waiting_pays(int32_t guided_rows, int32_t free_rows) const;
  double gap_us() const { return gap_us_; }
  // That the device was idle, where the step before was waited for. Guessing took some of it, and is counted elsewhere:
  // reading a long text for the first draft would say for ever that waiting is dear. `run_us`: what the step behind it
  // took.
  void learn_gap(double gap_us, double drafting_us = 0, double run_us = std::numeric_limits<double>::max());

  double decode_us(int32_t decode_rows) const;  // expected time of a step of decode rows; 0: unknown
  // Expected time of a step of so many rows that all give a token, drafts included; 0: unknown.
  double rows_us(int32_t rows) const;
  void learn_rows(int32_t rows, double run_us);
  // What such a step took before there was any work: of those that were not seen since, how much more or less they take
  // than those that were.
  void expect_rows(int32_t rows, double run_us);
  static constexpr int32_t kMostRows = 128;

  double prefill_us_per_row() const { return prefill_us_; }
  void set_prefill_us_per_row(double us) { prefill_us_ = us; }

  static constexpr double kStretch = 1.6;
  static constexpr double kMostStretch = 4;  // with many prompts for few streams

 private:
  double target_us_;
  int32_t max_step_tokens_;
  std::vector<double> decode_us_;  // by number of rows; 0: never seen
  struct Price {
    double us = 0;  // 0: never seen
    int32_t samples = 0;
  };
  double expected_us(int32_t rows) const;

  std::vector<Price> rows_ = std::vector<Price>(kMostRows + 1);             // by number of rows
  std::vector<double> expected_ = std::vector<double>(kMostRows + 1, 0.0);  // likewise; 0: unknown
  double prefill_us_ = 0;  // a row, with its part of what is read before it
  double row_us_ = 0;      // a row that has little before it
  double read_us_ = 0;     // a token before the rows; 0: unknown
  double expected_read_us_ = 0;
  int32_t mixed_steps_ = 0;  // in a row
  double gap_us_ = 0;
};

}  // namespace ingot
