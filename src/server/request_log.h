#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace ingot::server {

// What is known about a request when it is over. Never its text.
struct RequestRecord {
  std::chrono::system_clock::time_point time;  // of arrival
  std::string id;
  std::string peer;
  std::string method;
  std::string path;
  int status = 0;  // 499: the client left before the answer was complete
  double duration_s = 0;

  std::string model;  // the rest: completions only
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> cached_tokens;
  std::optional<int64_t> completion_tokens;
  std::optional<double> first_token_s;
  std::optional<double> tokens_per_s;  // after the first token
  std::string finish;                  // stop, length, cancelled, ...: of the choices, without repetition
  std::string error;
};

enum class LogFormat { text, json };

// One line a request, without the line end. Text is logfmt (`key=value`, quoted and escaped where needed); both are
// pure ASCII and cannot be broken by anything a client sends.
std::string format_record(const RequestRecord& record, LogFormat format);

// Hands each line to the sink, one at a time. An empty sink: nothing is logged.
class RequestLog {
 public:
  using Sink = std::function<void(std::string_view line)>;
  RequestLog(Sink sink, LogFormat format) : sink_(std::move(sink)), format_(format) {}

  void write(const RequestRecord& record);

 private:
  const Sink sink_;
  const LogFormat format_;
  std::mutex mutex_;
};

}  // namespace ingot::server
