#include "orchestrator/measured_steps.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
#include "ingot/step_builder.h"

namespace ingot {
namespace {

using Watch = std::chrono::steady_clock;

constexpr int kTries = 8;           // of a step: a device may prepare for the first ones
constexpr double kTryUs = 100e3;    // of all tries but the first two
constexpr double kAllUs = 1'000e3;  // of all sizes
constexpr int64_t kMovedBlocks = 8;
constexpr int kMoveTries = 5;  // the first touches the memory

double us_since(Watch::time_point begin) {
  return std::chrono::duration<double, std::micro>(Watch::now() - begin).count();
}

}  // namespace

double measured_step_us(Engine& engine, int32_t sequences, int32_t rows, bool all_draw, int64_t given_width) {
  const int64_t block_size = engine.limits().block_size;
  const std::vector<int32_t> ids(static_cast<size_t>(rows), 0);
  std::vector<int32_t> blocks(static_cast<size_t>(ceil_div(rows, block_size)));
  StepBuilder builder(block_size);
  for (int32_t s = 0; s < sequences; ++s) {
    std::iota(blocks.begin(), blocks.end(), s * static_cast<int32_t>(blocks.size()));
    const int32_t first = builder.add(ids, 0, blocks);
    for (int32_t row = all_draw ? 0 : rows - 1; row < rows; ++row) builder.sample(first + row, {.temperature = 0});
  }
  if (given_width > 0) {
    Step& step = builder.step();
    step.given_width = static_cast<int32_t>(given_width);
    step.states.assign(static_cast<size_t>(given_width * builder.rows()), 1.0f);
    step.state_rows = step.sample_rows;
  }
  const Step& step = builder.finish();
  const Watch::time_point begin = Watch::now();
  double least = std::numeric_limits<double>::max();
  StepTicket ticket = engine.submit(step);
  for (int i = 0; i < kTries && (i < 2 || us_since(begin) < kTryUs); ++i) {
    const Watch::time_point before = Watch::now();
    const StepTicket next = engine.submit(step);  // as steps follow each other: one is in flight, always
    engine.wait(std::exchange(ticket, next));
    least = std::min(least, us_since(before));
  }
  engine.wait(ticket);
  return least;
}

void expect_rows(Engine& engine, Pacer& pacer) {
  const EngineLimits& limits = engine.limits();
  const Watch::time_point begin = Watch::now();
  const int32_t most = std::min({limits.max_sample_rows, limits.max_step_tokens, Pacer::kMostRows});
  const auto widest = static_cast<int32_t>(
      std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(limits.max_seqs, limits.num_blocks))));
  for (int32_t rows = 1; rows <= most && us_since(begin) < kAllUs; rows *= 2) {
    const int32_t sequences = std::min(rows, widest), each = rows / sequences;
    if (each > limits.max_model_len || sequences * ceil_div(each, limits.block_size) > limits.num_blocks) break;
    pacer.expect_rows(rows, measured_step_us(engine, sequences, each, true));
  }
}

double measured_move_us(Engine& engine) {
  const EngineLimits& limits = engine.limits();
  const auto blocks = static_cast<int32_t>(std::min<int64_t>({limits.host_blocks, limits.num_blocks, kMovedBlocks}));
  if (blocks == 0) return 0;
  StepBuilder builder(limits.block_size);
  for (int32_t i = 0; i < blocks; ++i) {
    builder.step().block_saves.push_back({i, i});
    builder.step().block_loads.push_back({i, i});
  }
  const Step& step = builder.finish();
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kMoveTries; ++i) {
    const Watch::time_point before = Watch::now();
    const StepTicket ticket = engine.submit(step);
    const double submit_us = us_since(before);
    least = std::min(least, std::max(submit_us, engine.wait(ticket).stats.run_us));
  }
  return least / (2 * blocks);
}

}  // namespace ingot
