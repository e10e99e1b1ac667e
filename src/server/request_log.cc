#include "server/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot::server {
namespace {

constexpr size_t kMaxValue = 512;  // bytes of one value; a path may be long

std::string time_text(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\'; });
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= ' ' && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += '"';
}

// Calls add(name, value) for every field that is there, in the order they are written.
template <typename Add>
void each_field(const RequestRecord& r, Add&& add) {
  add("time", time_text(r.time));
  add("id", r.id);
  add("peer", r.peer);
  add("method", r.method);
  add("path", r.path);
  add("status", static_cast<int64_t>(r.status));
  add("duration_ms", r.duration_s * 1e3);
  if (!r.model.empty()) add("model", r.model);
  if (r.prompt_tokens) add("prompt_tokens", *r.prompt_tokens);
  if (r.cached_tokens) add("cached_tokens", *r.cached_tokens);
  if (r.completion_tokens) add("completion_tokens", *r.completion_tokens);
  if (r.first_token_s) add("ttft_ms", *r.first_token_s * 1e3);
  if (r.tokens_per_s) add("tok_s", *r.tokens_per_s);
  if (!r.finish.empty()) add("finish", r.finish);
  if (!r.error.empty()) add("error", r.error);
}

double rounded(double value) { return std::round(value * 100) / 100; }

struct TextFields {
  std::string out;
  void operator()(const char* name, std::string_view value) {
    begin(name);
    value = value.substr(0, kMaxValue);
    if (is_plain(value))
      out += value;
    else
      append_quoted(out, value);
  }
  void operator()(const char* name, const std::string& value) { (*this)(name, std::string_view(value)); }
  void operator()(const char* name, int64_t value) { begin(name), out += fmt::format("{}", value); }
  void operator()(const char* name, double value) { begin(name), out += fmt::format("{}", rounded(value)); }

 private:
  void begin(const char* name) {
    if (!out.empty()) out += ' ';
    out += name;
    out += '=';
  }
};

struct JsonFields {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  void operator()(const char* name, const std::string& value) { out[name] = value.substr(0, kMaxValue); }
  void operator()(const char* name, int64_t value) { out[name] = value; }
  void operator()(const char* name, double value) { out[name] = rounded(value); }
};

}  // namespace

std::string format_record(const RequestRecord& record, LogFormat format) {
  if (format == LogFormat::text) {
    TextFields fields;
    each_field(record, fields);
    return fields.out;
  }
  JsonFields fields;
  each_field(record, fields);
  return fields.out.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void RequestLog::write(const RequestRecord& record) {
  if (!sink_) return;
  const std::string line = format_record(record, format_);
  const std::lock_guard lock(mutex_);
  sink_(line);
}

}  // namespace ingot::server
