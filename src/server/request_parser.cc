#include "server/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/ascii.h"

namespace ingot::server {
namespace {

constexpr std::array<std::string_view, 7> kMethods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
constexpr int kMostBlankLines = 2;  // old clients send one after a body

// False for a broken escape and for one that hides a control character.
bool percent_decode(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    const int byte = high * 16 + low;
    if (byte < 0x20 || byte == 0x7f) return false;
    out += static_cast<char>(byte);
    i += 2;
  }
  return true;
}

bool is_host(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return is_alpha(c) || is_digit(c) || std::string_view("-._~:[]%!$&'()*+;=").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool RequestParser::fail(int status, std::string_view code, std::string message) {
  stage_ = Stage::failed;
  refusal_ = {status, std::string(code), std::move(message)};
  return false;
}

size_t RequestParser::feed(std::string_view bytes) {
  if (stage_ == Stage::head) return feed_head(bytes);
  if (stage_ == Stage::body) return feed_body(bytes);
  return 0;
}

size_t RequestParser::feed_head(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool after_cr = head_.size() > line_start_ && head_.back() == '\r';
    if (after_cr != (c == '\n')) {
      fail(400, "malformed_request", "lines of the head must end in CR LF, and neither may stand alone");
      return i + 1;
    }
    if (is_control(c) && c != '\t' && c != '\r' && c != '\n') {
      const bool is_tls = c == 0x16 && head_.empty();
      fail(400, "malformed_request",
           is_tls ? "this is plain HTTP: use http:// instead of https://"
                  : fmt::format("byte 0x{:02x} is not allowed in the head", static_cast<int>(c)));
      return i + 1;
    }
    head_ += c;
    if (head_.size() > limits_.head_bytes) {
      fail(431, "head_too_large", fmt::format("the request line and headers are over {} bytes", limits_.head_bytes));
      return i + 1;
    }
    if (c != '\n') continue;
    const std::string_view line(head_.data() + line_start_, head_.size() - line_start_ - 2);
    if (line_start_ == 0 && line.empty()) {
      head_.clear();
      if (++blank_lines_ > kMostBlankLines) {
        fail(400, "malformed_request", "a request must begin with a request line");
        return i + 1;
      }
      continue;
    }
    const bool last = line.empty();
    if (!(last ? finish_head() : take_line(line)) || last) return i + 1;
    line_start_ = head_.size();
  }
  return bytes.size();
}

bool RequestParser::take_line(std::string_view line) {
  if (line_start_ == 0) return take_request_line(line);
  if (line.front() == ' ' || line.front() == '\t')
    return fail(400, "malformed_request", "a header may not be folded over two lines");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return fail(400, "malformed_request", "a header line must be `name: value`, without a space before the colon");
  if (request_.headers.size() >= limits_.headers)
    return fail(431, "head_too_large", fmt::format("there are more than {} headers", limits_.headers));
  request_.headers.emplace_back(ascii_lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  return true;
}

bool RequestParser::take_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return fail(400, "malformed_request", "the request line must be `METHOD /path HTTP/1.1`");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return fail(400, "malformed_request", "the method of the request is malformed");
  if (version == "HTTP/1.1")
    minor_version_ = 1;
  else if (version == "HTTP/1.0")
    minor_version_ = 0;
  else
    return fail(400, "unsupported_version", "only HTTP/1.1 and HTTP/1.0 are spoken here");
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end())
    return fail(405, "method_not_allowed", fmt::format("method {} is not served", method.substr(0, 32)));
  request_.method = method;
  return take_target(target);
}

bool RequestParser::take_target(std::string_view target) {
  if (target == "*" && request_.method == "OPTIONS") {
    request_.path = "*";
    return true;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!ascii_lower(target.substr(0, scheme.size())).starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t slash = std::min(target.find_first_of("/?"), target.size());
    authority_ = target.substr(0, slash);
    target.remove_prefix(slash);
    if (authority_->empty()) return fail(400, "malformed_target", "the target names no host");
    if (target.empty()) target = "/";
    break;
  }
  if (!target.starts_with('/'))
    return fail(400, "malformed_target", "the target must be a path that begins with `/`: this is not a proxy");
  for (const char c : target)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == '#')
      return fail(400, "malformed_target", "the target has a character that must be percent-encoded");
  const size_t question = target.find('?');
  if (!percent_decode(target.substr(0, question), request_.path))
    return fail(400, "malformed_target", "the path has a broken percent escape");
  if (question != std::string_view::npos) request_.query = target.substr(question + 1);
  return true;
}

bool RequestParser::finish_head() {
  size_t hosts = 0;
  for (const auto& [name, value] : request_.headers) {
    if (name != "host") continue;
    ++hosts;
    if (!is_host(value)) return fail(400, "malformed_request", "the Host header is malformed");
    // Whoever sits between may have gone by either of them.
    if (authority_ && ascii_lower(*authority_) != ascii_lower(value))
      return fail(400, "malformed_request", "the target and the Host header name different hosts");
  }
  if (hosts > 1 || (hosts == 0 && minor_version_ == 1))
    return fail(400, "malformed_request", "there must be exactly one Host header");
  if (!judge_connection() || !judge_body_length()) return false;
  stage_ = chunked_ || body_left_ > 0 ? Stage::body : Stage::complete;
  return true;
}

bool RequestParser::judge_connection() {
  keep_alive_ = minor_version_ == 1;
  for (const auto& [name, value] : request_.headers) {
    if (name != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string option = ascii_lower(trim(rest.substr(0, comma)));
      if (option == "close") {
        keep_alive_ = false;
        return true;
      }
      if (option == "keep-alive") keep_alive_ = true;
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
  }
  return true;
}

bool RequestParser::judge_body_length() {
  const std::string* length = nullptr;
  size_t encodings = 0;
  for (const auto& [name, value] : request_.headers) {
    if (name == "content-length") {
      if (length != nullptr) return fail(400, "malformed_request", "there is more than one Content-Length");
      length = &value;
    } else if (name == "transfer-encoding") {
      ++encodings;
      if (ascii_lower(value) != "chunked")
        return fail(400, "malformed_request", "the only Transfer-Encoding served is `chunked`");
    }
  }
  if (encodings > 1) return fail(400, "malformed_request", "there is more than one Transfer-Encoding");
  if (encodings == 1 && length != nullptr)
    return fail(400, "malformed_request", "Content-Length and Transfer-Encoding may not come together");
  if (encodings == 1 && minor_version_ == 0)
    return fail(400, "malformed_request", "Transfer-Encoding is not a part of HTTP/1.0");
  chunked_ = encodings == 1;
  if (length == nullptr) return true;
  if (length->empty() || !std::all_of(length->begin(), length->end(), is_digit))
    return fail(400, "malformed_request", "Content-Length must be a number");
  for (const char c : *length) {
    body_left_ = body_left_ * 10 + static_cast<uint64_t>(c - '0');
    // Within the limit after every digit, so the number cannot overflow.
    if (body_left_ > limits_.body_bytes)
      return fail(413, "request_too_large", fmt::format("the body is over the limit of {} bytes", limits_.body_bytes));
  }
  return true;
}

size_t RequestParser::feed_body(std::string_view bytes) {
  if (!chunked_) {
    const size_t used = static_cast<size_t>(std::min<uint64_t>(body_left_, bytes.size()));
    request_.body.append(bytes.substr(0, used));
    body_left_ -= used;
    if (body_left_ == 0) stage_ = Stage::complete;
    return used;
  }
  size_t used = 0;
  switch (chunks_.feed(bytes, limits_.body_bytes, request_.body, used)) {
    case ChunkDecoder::Result::more: break;
    case ChunkDecoder::Result::end: stage_ = Stage::complete; break;
    case ChunkDecoder::Result::malformed: fail(400, "malformed_request", "the chunked body is malformed"); break;
    case ChunkDecoder::Result::too_large:
      fail(413, "request_too_large", fmt::format("the body is over the limit of {} bytes", limits_.body_bytes));
      break;
  }
  return used;
}

}  // namespace ingot::server
