#include "server/metrics.h"

#include <fmt/format.h>

#include <cmath>

#include "core/memory.h"

namespace ingot::server {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
}

struct HistogramMetric {
  const char* name;
  const char* help;
  Histogram LlmStats::* member;
};

constexpr HistogramMetric kHistograms[] = {
    {"vllm:iteration_tokens_total", "Tokens of a step.", &LlmStats::step_tokens},
    {"vllm:time_to_first_token_seconds", "From the arrival of a request to its first token.", &LlmStats::first_token_s},
    {"vllm:inter_token_latency_seconds", "Between two tokens of a choice.", &LlmStats::inter_token_s},
    {"vllm:e2e_request_latency_seconds", "From the arrival of a request to its end.", &LlmStats::e2e_s},
    {"vllm:request_queue_time_seconds", "From the arrival of a request to its first step.", &LlmStats::queue_s},
    {"vllm:request_prefill_time_seconds", "From the first step of a request to its first token.", &LlmStats::prefill_s},
    {"vllm:request_decode_time_seconds", "From the first token of a request to its end.", &LlmStats::decode_s},
    {"vllm:request_prompt_tokens", "Prompt tokens of a request.", &LlmStats::request_prompt_tokens},
    {"vllm:request_generation_tokens", "Tokens generated for a request.", &LlmStats::request_generation_tokens},
    {"vllm:request_params_max_tokens", "max_tokens of a request.", &LlmStats::request_max_tokens},
    {"vllm:request_params_n", "n of a request.", &LlmStats::request_n},
    {"ingot:step_seconds", "Device time of a step.", &LlmStats::step_s},
    {"ingot:step_gap_seconds", "Idle time of the device between two steps that follow each other.",
     &LlmStats::step_gap_s},
};

// The prefix cache below the device; nothing where there is none.
void write_tiers(MetricsText& text, const MetricsInfo& info, const LlmStats& s) {
  if (s.host_blocks_total == 0) return;
  using Sample = std::pair<const char*, uint64_t>;
  const auto by = [&](const char* name, const char* type, const char* label, const char* help,
                      std::initializer_list<Sample> samples) {
    text.begin(name, type, help);
    for (const auto& [value, count] : samples)
      text.sample("", {{"model_name", info.model_name}, {label, value}}, static_cast<double>(count));
  };
  text.begin("vllm:external_prefix_cache_hits_total", "counter", "Prompt tokens found below the device.");
  text.sample("", {{"model_name", info.model_name}}, static_cast<double>(s.prefix_host_hits + s.prefix_disk_hits));
  by("ingot:prefix_tier_hits_total", "counter", "tier", "Prompt tokens found below the device, by where.",
     {{"host", s.prefix_host_hits}, {"disk", s.prefix_disk_hits}});
  by("ingot:prefix_moved_bytes_total", "counter", "way", "Bytes of blocks that went from one tier to another.",
     {{"device_to_host", s.host_saved_bytes},
      {"host_to_device", s.host_loaded_bytes},
      {"host_to_disk", s.disk_written_bytes},
      {"disk_to_host", s.disk_read_bytes}});
  by("ingot:prefix_dropped_blocks_total", "counter", "reason",
     "Blocks that were given up: files that were not what had been written, and blocks that nothing had room for.",
     {{"damaged", s.blocks_damaged}, {"no_room", s.blocks_lost}});
  by("ingot:host_blocks", "gauge", "state", "Blocks of host memory, by state.",
     {{"kept", static_cast<uint64_t>(s.host_blocks_kept)},
      {"free", static_cast<uint64_t>(s.host_blocks_total - s.host_blocks_kept)}});
  text.begin("ingot:prefix_disk_bytes", "gauge", "Bytes of the files of the prefix cache, about.");
  text.sample("", {{"model_name", info.model_name}}, static_cast<double>(s.disk_bytes));
}

void write_stats(MetricsText& text, const MetricsInfo& info, const LlmStats& s) {
  const MetricsText::Labels model = {{"model_name", info.model_name}};
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help, double value) {
    text.begin(name, type, help);
    text.sample("", model, value);
  };
  const auto count = [&](std::string_view name, std::string_view help, uint64_t value) {
    one(name, "counter", help, static_cast<double>(value));
  };
  one("vllm:num_requests_running", "gauge", "Requests that hold blocks of the KV cache.", s.running);
  one("vllm:num_requests_waiting", "gauge", "Requests that wait for their turn.", s.waiting);
  const double usage =
      s.blocks_total > 0 ? static_cast<double>(s.blocks_used) / static_cast<double>(s.blocks_total) : 0;
  one("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache's blocks in use; 1 is all.", usage);
  count("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", s.prefix_queries);
  count("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", s.prefix_hits);
  write_tiers(text, info, s);
  count("vllm:num_preemptions_total", "Requests that lost their blocks and started over.", s.preemptions);
  count("vllm:prompt_tokens_total", "Prompt tokens processed.", s.prompt_tokens);
  count("vllm:generation_tokens_total", "Tokens generated.", s.generation_tokens);
  count("vllm:spec_decode_num_drafts_total", "Guesses of coming tokens that were verified.", s.drafts);
  count("vllm:spec_decode_num_draft_tokens_total", "Tokens of those guesses.", s.draft_tokens);
  count("vllm:spec_decode_num_accepted_tokens_total", "Of those, the ones that were drawn.", s.accepted_tokens);
  text.begin("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
             "Guessed tokens that were drawn, by their place in the guess.");
  for (size_t i = 0; i < s.accepted_at_position.size(); ++i) {
    const std::string position = fmt::format("{}", i);
    text.sample("", {{"model_name", info.model_name}, {"position", position}},
                static_cast<double>(s.accepted_at_position[i]));
  }
  count("ingot:draft_steps_total", "Steps of the draft model.", s.draft_steps);
  one("ingot:drafting_seconds_total", "counter", "Time that the draft model took to guess.", s.drafting_s);
  text.begin("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  const std::pair<const char*, uint64_t> reasons[] = {{"stop", s.finished_stop},
                                                      {"length", s.finished_length},
                                                      {"abort", s.finished_abort},
                                                      {"error", s.finished_error}};
  for (const auto& [reason, value] : reasons)
    text.sample("", {{"model_name", info.model_name}, {"finished_reason", reason}}, static_cast<double>(value));
  for (const HistogramMetric& metric : kHistograms) {
    text.begin(metric.name, "histogram", metric.help);
    text.histogram(model, s.*metric.member);
  }
  text.begin("vllm:cache_config_info", "gauge", "The KV cache, in labels; the value is always 1.");
  const std::string block_size = fmt::format("{}", info.block_size), blocks = fmt::format("{}", info.num_blocks);
  MetricsText::Labels cache = {{"model_name", info.model_name}, {"block_size", block_size}, {"num_gpu_blocks", blocks}};
  cache.insert(cache.end(), info.cache_labels.begin(), info.cache_labels.end());
  text.sample("", cache, 1);
  count("ingot:steps_total", "Steps run.", s.steps);
  count("ingot:failed_steps_total", "Steps that failed.", s.failed_steps);
  count("ingot:refused_requests_total", "Requests refused for lack of room.", s.refused);
  text.begin("ingot:kv_blocks", "gauge", "Blocks of the KV cache, by state.");
  const int64_t free_blocks = s.blocks_total - s.blocks_used - s.blocks_cached;
  const std::pair<const char*, int64_t> states[] = {
      {"used", s.blocks_used}, {"cached", s.blocks_cached}, {"free", free_blocks}};
  for (const auto& [state, value] : states)
    text.sample("", {{"model_name", info.model_name}, {"state", state}}, static_cast<double>(value));
  one("ingot:host_bytes", "gauge", "Host memory held by waiting and running requests.",
      static_cast<double>(s.host_bytes));
}

}  // namespace

void HttpCounts::add(std::string_view method, std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[{std::string(method), std::string(route), status}];
}

std::map<HttpCounts::Key, uint64_t> HttpCounts::snapshot() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void MetricsText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  out_ += fmt::format("# HELP {} ", name);
  append_escaped(out_, help, false);
  out_ += fmt::format("\n# TYPE {} {}\n", name, type);
}

void MetricsText::sample(std::string_view suffix, const Labels& labels, double value) {
  out_ += name_;
  out_ += suffix;
  if (!labels.empty()) {
    char separator = '{';
    for (const auto& [name, label] : labels) {
      out_ += separator;
      out_ += name;
      out_ += "=\"";
      append_escaped(out_, label, true);
      out_ += '"';
      separator = ',';
    }
    out_ += '}';
  }
  out_ += ' ';
  out_ += number(value);
  out_ += '\n';
}

void MetricsText::histogram(const Labels& labels, const Histogram& histogram) {
  uint64_t seen = 0;
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    if (i < histogram.counts.size()) seen += histogram.counts[i];
    const std::string bound = fmt::format("{}", histogram.bounds[i]);
    with_bound.back().second = bound;
    sample("_bucket", with_bound, static_cast<double>(seen));
  }
  with_bound.back().second = "+Inf";
  sample("_bucket", with_bound, static_cast<double>(histogram.total));
  sample("_sum", labels, histogram.sum);
  sample("_count", labels, static_cast<double>(histogram.total));
}

std::string format_metrics(const MetricsInfo& info, const LlmStats* stats,
                           const std::map<HttpCounts::Key, uint64_t>& http) {
  MetricsText text;
  if (stats != nullptr) write_stats(text, info, *stats);
  text.begin("ingot:http_requests_total", "counter", "Requests answered, by method, path and status.");
  for (const auto& [key, value] : http) {
    const auto& [method, path, status] = key;
    const std::string code = fmt::format("{}", status);
    text.sample("", {{"method", method}, {"path", path}, {"status", code}}, static_cast<double>(value));
  }
  text.begin("ingot:log_lines_dropped_total", "counter", "Lines of the log that nobody read in time.");
  text.sample("", {}, static_cast<double>(info.log_dropped));
  text.begin("ingot:build_info", "gauge", "Version and device, in labels; the value is always 1.");
  text.sample("", {{"version", info.version}, {"device", info.device}}, 1);
  text.begin("ingot:peak_resident_bytes", "gauge", "The most physical memory the process has held.");
  text.sample("", {}, static_cast<double>(peak_rss_bytes()));
  text.begin("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.");
  text.sample("", {}, info.start_time_s);
  return text.take();
}

}  // namespace ingot::server
