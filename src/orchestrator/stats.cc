#include "orchestrator/stats.h"

#include <algorithm>

#include "orchestrator/speculator.h"

namespace ingot {
namespace {

Histogram with_bounds(std::vector<double> bounds) {
  Histogram histogram;
  histogram.counts.assign(bounds.size() + 1, 0);
  histogram.bounds = std::move(bounds);
  return histogram;
}

// 1, 2, 5, 10, 20, 50, ... up to `most`.
std::vector<double> one_two_five(double most) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= most; decade *= 10)
    for (const double step : {1.0, 2.0, 5.0})
      if (decade * step <= most) bounds.push_back(decade * step);
  return bounds;
}

}  // namespace

LlmStats empty_stats() {
  LlmStats stats;
  stats.accepted_at_position.assign(Speculator::kMostDraft, 0);
  stats.first_token_s = with_bounds({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560});
  stats.inter_token_s = with_bounds({0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                     0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80});
  const std::vector<double> latency = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
                                       15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
  stats.e2e_s = stats.queue_s = stats.prefill_s = stats.decode_s = with_bounds(latency);
  stats.step_tokens = with_bounds({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
  stats.request_prompt_tokens = stats.request_generation_tokens = stats.request_max_tokens =
      with_bounds(one_two_five(200000));
  stats.request_n = with_bounds({1, 2, 5, 10, 20});
  stats.step_s = with_bounds({0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5});
  stats.step_gap_s = with_bounds({1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2});
  return stats;
}

void observe(Histogram& histogram, double value) {
  const auto bucket = std::lower_bound(histogram.bounds.begin(), histogram.bounds.end(), value);
  ++histogram.counts[static_cast<size_t>(bucket - histogram.bounds.begin())];
  histogram.sum += value;
  ++histogram.total;
}

void observe_request(LlmStats& stats, const Request& request, FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::no_token: ++stats.finished_stop; break;
    case FinishReason::length: ++stats.finished_length; break;
    case FinishReason::error: ++stats.finished_error; break;
    default: ++stats.finished_abort;
  }
  if (reason == FinishReason::error) return;
  const GenerationSummary& summary = request.summary;
  observe(stats.request_prompt_tokens, static_cast<double>(request.prompt_len));
  observe(stats.request_max_tokens, static_cast<double>(request.max_tokens));
  observe(stats.request_n, request.spec.n);
  if (!request.has_token) return;
  observe(stats.request_generation_tokens, static_cast<double>(summary.completion_tokens));
  observe(stats.e2e_s, summary.queue_s + summary.prefill_s + summary.decode_s);
  observe(stats.queue_s, summary.queue_s);
  observe(stats.prefill_s, summary.prefill_s);
  observe(stats.decode_s, summary.decode_s);
}

void observe_tiers(LlmStats& stats, const SchedulerCounts& counts, const PrefixTierCounts& tiers) {
  stats.prefix_host_hits = counts.host_hits;
  stats.prefix_disk_hits = counts.disk_hits;
  stats.host_blocks_total = tiers.host_blocks;
  stats.host_blocks_kept = tiers.host_kept;
  stats.host_saved_bytes = tiers.saved_blocks * tiers.block_bytes;
  stats.host_loaded_bytes = tiers.loaded_blocks * tiers.block_bytes;
  stats.blocks_lost = tiers.lost;
}

void observe_disk(LlmStats& stats, const DiskCounts& disk) {
  stats.disk_written_bytes = disk.written_bytes;
  stats.disk_read_bytes = disk.read_bytes;
  stats.disk_bytes = disk.bytes;
  stats.blocks_damaged = disk.damaged;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace ingot
