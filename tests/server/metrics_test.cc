#include "server/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "server/openai_rig.h"

namespace ingot::server {
namespace {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct Family {
  std::string help, type;
  std::vector<Sample> samples;
};

// A strict reader of the text format 0.0.4: throws on anything that the format does not allow, and on families that
// are split, repeated or without HELP and TYPE.
class Parser {
 public:
  explicit Parser(std::string text) : text_(std::move(text)) {}

  std::map<std::string, Family> parse() {
    if (text_.empty() || text_.back() != '\n') fail("the last line has no end");
    while (at_ < text_.size()) line();
    for (const auto& [name, family] : families_)
      if (family.type == "histogram") check_histogram(name, family);
    return std::move(families_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(why + " at: " + text_.substr(at_, 80));
  }
  bool eat(std::string_view word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void need(std::string_view word) {
    if (!eat(word)) fail("expected " + std::string(word));
  }
  std::string name(bool colons) {
    const size_t start = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':');
      if (!letter && !(at_ > start && c >= '0' && c <= '9')) break;
      ++at_;
    }
    if (at_ == start) fail("no name");
    return text_.substr(start, at_ - start);
  }
  std::string rest() {
    const size_t end = text_.find('\n', at_);
    std::string line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  void line() {
    if (eat("# HELP ")) {
      current_ = name(true);
      if (families_.contains(current_)) fail("a family twice");
      need(" ");
      families_[current_].help = rest();
      if (families_[current_].help.empty()) fail("no help");
    } else if (eat("# TYPE ")) {
      if (name(true) != current_) fail("TYPE of another family");
      need(" ");
      families_[current_].type = rest();
      if (!std::set<std::string>{"counter", "gauge", "histogram"}.contains(families_[current_].type)) fail("bad type");
    } else {
      sample();
    }
  }

  void sample() {
    Sample sample{.name = name(true)};
    Family& family = families_.at(current_);
    const std::string suffix = sample.name.substr(std::min(sample.name.size(), current_.size()));
    const bool fits =
        sample.name.starts_with(current_) &&
        (family.type == "histogram" ? suffix == "_bucket" || suffix == "_sum" || suffix == "_count" : suffix.empty());
    if (!fits) fail("a sample of another family");
    if (family.type == "counter" && !current_.ends_with("_total")) fail("a counter without _total");
    if (eat("{")) {
      do {
        const std::string label = name(false);
        need("=\"");
        if (!sample.labels.emplace(label, value()).second) fail("a label twice");
      } while (eat(","));
      need("}");
    }
    need(" ");
    const std::string number = rest();
    if (number.empty() || number.find_first_of(" \t") != number.npos) fail("not a number: " + number);
    size_t used = 0;
    sample.value = number == "+Inf" ? INFINITY : std::stod(number, &used);
    if (number != "+Inf" && used != number.size()) fail("not a number: " + number);
    if (family.type == "counter" && !(sample.value >= 0)) fail("a negative counter");
    if (!seen_.insert({sample.name, sample.labels}).second) fail("a sample twice");
    family.samples.push_back(std::move(sample));
  }

  std::string value() {
    std::string out;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\n') fail("a line end in a label");
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      const char c = text_[++at_];
      if (c != '\\' && c != '"' && c != 'n') fail("a bad escape");
      out += c == 'n' ? '\n' : c;
    }
    need("\"");
    return out;
  }

  void check_histogram(const std::string& name, const Family& family) const {
    double last = 0, bound = -INFINITY, infinite = -1, count = -2;
    bool sum = false;
    for (const Sample& sample : family.samples) {
      if (sample.name == name + "_sum") sum = true;
      if (sample.name == name + "_count") count = sample.value;
      if (sample.name != name + "_bucket") continue;
      const std::string& le = sample.labels.at("le");
      const double next = le == "+Inf" ? INFINITY : std::stod(le);
      if (next <= bound) throw std::runtime_error(name + ": bounds do not ascend");
      if (sample.value < last) throw std::runtime_error(name + ": buckets are not cumulative");
      bound = next, last = sample.value;
      if (std::isinf(next)) infinite = sample.value;
    }
    if (!sum || infinite != count) throw std::runtime_error(name + ": _sum, _count and +Inf do not fit");
  }

  const std::string text_;
  size_t at_ = 0;
  std::string current_;
  std::map<std::string, Family> families_;
  std::set<std::pair<std::string, std::map<std::string, std::string>>> seen_;
};

Histogram histogram(std::vector<double> bounds, std::vector<uint64_t> counts, double sum) {
  Histogram h{.bounds = std::move(bounds), .counts = std::move(counts), .sum = sum};
  for (const uint64_t count : h.counts) h.total += count;
  return h;
}

LlmStats sample_stats() {
  LlmStats s;
  s.running = 3;
  s.waiting = 2;
  s.blocks_total = 100;
  s.blocks_used = 25;
  s.blocks_cached = 50;
  s.steps = 1000;
  s.failed_steps = 1;
  s.preemptions = 4;
  s.prompt_tokens = 1234567890123;
  s.generation_tokens = 77;
  s.prefix_queries = 60;
  s.prefix_hits = 40;
  s.refused = 5;
  s.finished_stop = 10, s.finished_length = 11, s.finished_abort = 12, s.finished_error = 13;
  s.host_bytes = 4096;
  s.first_token_s = histogram({0.001, 0.5, 10}, {1, 2, 3, 4}, 12.5);
  s.step_gap_s = histogram({1e-05, 0.1}, {7, 0, 0}, 3.5e-05);
  return s;
}

TEST(Metrics, EveryNameAndValue) {
  const MetricsInfo info{.model_name = "a\"b\\c\nd",
                         .version = "1.2.3",
                         .device = "cpu",
                         .block_size = 16,
                         .num_blocks = 100,
                         .cache_labels = {{"cache_dtype", "f16"}},
                         .start_time_s = 1.7e9};
  const LlmStats stats = sample_stats();
  HttpCounts http;
  http.add("GET", "/metrics", 200);
  http.add("GET", "/metrics", 200);
  http.add("POST", "/v1/completions", 400);
  const std::map<std::string, Family> families = Parser(format_metrics(info, &stats, http.snapshot())).parse();

  const auto value = [&](const std::string& family, const std::map<std::string, std::string>& labels,
                         const std::string& name = "") -> double {
    const auto found = families.find(family);
    if (found == families.end()) return ADD_FAILURE() << family << " is missing", NAN;
    for (const Sample& sample : found->second.samples)
      if (sample.name == (name.empty() ? family : name) && sample.labels == labels) return sample.value;
    return ADD_FAILURE() << family << " has no such sample", NAN;
  };
  const std::map<std::string, std::string> model = {{"model_name", "a\"b\\c\nd"}};
  const auto with = [&](const std::string& name, const std::string& label) {
    auto labels = model;
    labels[name] = label;
    return labels;
  };
  EXPECT_EQ(value("vllm:num_requests_running", model), 3);
  EXPECT_EQ(value("vllm:num_requests_waiting", model), 2);
  EXPECT_EQ(value("vllm:kv_cache_usage_perc", model), 0.25);
  EXPECT_EQ(value("vllm:prefix_cache_queries_total", model), 60);
  EXPECT_EQ(value("vllm:prefix_cache_hits_total", model), 40);
  EXPECT_EQ(value("vllm:num_preemptions_total", model), 4);
  EXPECT_EQ(value("vllm:prompt_tokens_total", model), 1234567890123);
  EXPECT_EQ(value("vllm:generation_tokens_total", model), 77);
  EXPECT_EQ(value("vllm:request_success_total", with("finished_reason", "stop")), 10);
  EXPECT_EQ(value("vllm:request_success_total", with("finished_reason", "length")), 11);
  EXPECT_EQ(value("vllm:request_success_total", with("finished_reason", "abort")), 12);
  EXPECT_EQ(value("vllm:request_success_total", with("finished_reason", "error")), 13);
  const std::string first = "vllm:time_to_first_token_seconds";
  EXPECT_EQ(value(first, with("le", "0.001"), first + "_bucket"), 1);
  EXPECT_EQ(value(first, with("le", "0.5"), first + "_bucket"), 3);
  EXPECT_EQ(value(first, with("le", "10"), first + "_bucket"), 6);
  EXPECT_EQ(value(first, with("le", "+Inf"), first + "_bucket"), 10);
  EXPECT_EQ(value(first, model, first + "_sum"), 12.5);
  EXPECT_EQ(value(first, model, first + "_count"), 10);
  EXPECT_EQ(value("ingot:step_gap_seconds", with("le", "1e-05"), "ingot:step_gap_seconds_bucket"), 7);
  EXPECT_EQ(value("ingot:steps_total", model), 1000);
  EXPECT_EQ(value("ingot:failed_steps_total", model), 1);
  EXPECT_EQ(value("ingot:refused_requests_total", model), 5);
  EXPECT_EQ(value("ingot:kv_blocks", with("state", "used")), 25);
  EXPECT_EQ(value("ingot:kv_blocks", with("state", "cached")), 50);
  EXPECT_EQ(value("ingot:kv_blocks", with("state", "free")), 25);
  EXPECT_EQ(value("ingot:host_bytes", model), 4096);
  EXPECT_EQ(value("ingot:http_requests_total", {{"method", "GET"}, {"path", "/metrics"}, {"status", "200"}}), 2);
  EXPECT_EQ(value("ingot:http_requests_total", {{"method", "POST"}, {"path", "/v1/completions"}, {"status", "400"}}),
            1);
  EXPECT_EQ(value("ingot:build_info", {{"version", "1.2.3"}, {"device", "cpu"}}), 1);
  EXPECT_EQ(value("process_start_time_seconds", {}), 1.7e9);
  auto cache = with("block_size", "16");
  cache["num_gpu_blocks"] = "100";
  cache["cache_dtype"] = "f16";
  EXPECT_EQ(value("vllm:cache_config_info", cache), 1);
  for (const char* name :
       {"vllm:iteration_tokens_total", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:request_params_max_tokens",
        "vllm:request_params_n", "ingot:step_seconds"})
    EXPECT_EQ(families.at(name).type, "histogram") << name;
}

TEST(Metrics, EndpointAnswersWhileLoadingAndAfter) {
  openai::ApiOptions options;
  options.version = "1";
  const auto api = openai::make_api(options);
  const auto ask = [&] {
    auto exchange = std::make_shared<testing::FakeExchange>("GET", "/metrics");
    api->handle(exchange);
    return exchange->wait();
  };
  HttpReply reply = ask();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_FALSE(Parser(reply.body).parse().contains("vllm:num_requests_running"));
  const auto generator = std::make_shared<testing::ScriptedGenerator>();
  generator->stats_now = sample_stats();
  api->attach(generator);
  EXPECT_TRUE(Parser(ask().body).parse().contains("vllm:num_requests_running"));
}

TEST(Metrics, TheStrictReaderIsStrict) {
  const std::string head = "# HELP a b\n# TYPE a gauge\n";
  EXPECT_NO_THROW(Parser(head + "a 1\n").parse());
  for (const char* bad : {"a 1", "a  1\n", "b 1\n", "a{} 1\n", "a{x=1} 1\n", "a{x=\"\\q\"} 1\n",
                          "a{x=\"1\",x=\"2\"} 1\n", "a 1\na 1\n", "a x\n", "a{x-y=\"1\"} 1\n"})
    EXPECT_THROW(Parser(head + bad).parse(), std::exception) << bad;
}

}  // namespace
}  // namespace ingot::server
