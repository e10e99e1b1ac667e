#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/chunk_decoder.h"
#include "server/http.h"

namespace ingot::server {

// Why a request is not taken: an HTTP status, a word for programs and a line for people.
struct Refusal {
  int status = 400;
  std::string code;
  std::string message;
};

struct ParserLimits {
  size_t head_bytes = 16 << 10;  // request line and headers
  size_t headers = 128;          // how many
  uint64_t body_bytes = 16 << 20;
};

// Reads one HTTP/1.0 or 1.1 request from bytes that come in any portions. It is strict where leniency lets two programs
// see different requests in the same bytes (RFC 9112, section 11): lines end in CR LF and nothing else, no folded
// lines, no space before a colon, one Host, one Content-Length of digits only, never together with Transfer-Encoding.
// A fault is found at the byte that makes it one, so that a bad client need not be waited for.
class RequestParser {
 public:
  enum class Stage { head, body, complete, failed };

  explicit RequestParser(const ParserLimits& limits) : limits_(limits) {}

  // Takes bytes and returns how many it used. It stops at the end of the head (stage() is then `body` or `complete`),
  // so that the request can be judged before its body is read, and at the end of the request.
  size_t feed(std::string_view bytes);

  Stage stage() const { return stage_; }
  const Refusal& refusal() const { return refusal_; }      // when failed
  bool empty() const { return head_.empty(); }             // nothing but blank lines was seen yet
  const HttpRequest& request() const { return request_; }  // all but the body from the end of the head on
  HttpRequest take_request() { return std::move(request_); }
  bool keep_alive() const { return keep_alive_; }
  bool is_http10() const { return minor_version_ == 0; }

 private:
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  bool take_line(std::string_view line);  // without CR LF; false: failed
  bool take_request_line(std::string_view line);
  bool take_target(std::string_view target);
  bool finish_head();
  bool judge_body_length();
  bool judge_connection();
  bool fail(int status, std::string_view code, std::string message);

  ParserLimits limits_;
  Stage stage_ = Stage::head;
  Refusal refusal_;
  HttpRequest request_;
  std::optional<std::string> authority_;  // of a target in absolute form
  std::string head_;                      // the head so far
  size_t line_start_ = 0;                 // of the line being read, in head_
  int blank_lines_ = 0;                   // before the request line
  int minor_version_ = 1;
  bool keep_alive_ = true;
  bool chunked_ = false;
  uint64_t body_left_ = 0;  // with a Content-Length
  ChunkDecoder chunks_;
};

}  // namespace ingot::server
