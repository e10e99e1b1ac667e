#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ingot/llm.h"

// Metrics in Prometheus' text format 0.0.4, under vLLM's names where it has one for the same thing.
namespace ingot::server {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// Requests answered, by route. Routes come from a fixed list, so that clients cannot make up new ones. Thread-safe.
class HttpCounts {
 public:
  void add(std::string_view method, std::string_view route, int status);
  using Key = std::tuple<std::string, std::string, int>;  // method, route, status
  std::map<Key, uint64_t> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, uint64_t> counts_;
};

struct MetricsInfo {
  std::string model_name;
  std::string version;
  std::string device;
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  std::vector<std::pair<std::string, std::string>> cache_labels;  // more about the KV cache
  double start_time_s = 0;                                        // of the process, seconds since 1970
  uint64_t log_dropped = 0;                                       // lines
};

// `stats` may be null (still loading): then only what the server knows itself is written.
std::string format_metrics(const MetricsInfo& info, const LlmStats* stats,
                           const std::map<HttpCounts::Key, uint64_t>& http);

// Builds the text: HELP and TYPE once a metric, then its samples.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  void begin(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::string_view suffix, const Labels& labels, double value);
  void histogram(const Labels& labels, const Histogram& histogram);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  std::string name_;
};

}  // namespace ingot::server
