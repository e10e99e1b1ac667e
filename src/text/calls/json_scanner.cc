#include "text/calls/json_scanner.h"

#include <fmt/format.h>

#include "core/utf8.h"

namespace ingot {
namespace {

constexpr size_t kMaxDepth = 256;
constexpr size_t kMaxToken = 512;  // of a number

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_token(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E'; }

// Whether more could make a value of the token.
bool is_token_start(std::string_view token) {
  for (const std::string_view word : {"true", "false", "null"})
    if (word.starts_with(token)) return true;
  return token == "-" || is_digit(token[token[0] == '-' ? 1 : 0]);
}

}  // namespace

bool is_json_number(std::string_view token) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t from = at;
    while (at < token.size() && is_digit(token[at])) ++at;
    return at - from;
  };
  if (at < token.size() && token[at] == '-') ++at;
  const bool zero = at < token.size() && token[at] == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (at < token.size() && token[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
    ++at;
    if (at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == token.size();
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (is_control(c))
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out.push_back(c);
    }
  }
}

Read JsonScanner::read(Input& in, std::string& out) {
  while (state_ != State::done) {
    if (in.empty()) {
      if (!in.ended || state_ != State::token || !open_.empty()) return Read::more;
      std::string end;
      bool taken = false;
      if (take(' ', end, taken) == Read::failed) return Read::failed;  // a number ends with the text
      continue;
    }
    const bool inside = !open_.empty() && !is_space(in.next());
    bool taken = true;
    if (take(in.next(), out, taken) == Read::failed) return Read::failed;
    settled_ |= inside;
    if (taken) ++in.at;
  }
  return Read::done;
}

Read JsonScanner::take(char c, std::string& out, bool& taken) {
  const auto keep = [&](State next) {
    out.push_back(c);
    state_ = next;
    return Read::more;
  };
  switch (state_) {
    case State::string:
      if (c == '"') {
        out.push_back(c);
        if (in_key_)
          state_ = State::colon;
        else
          end_value();
        return Read::more;
      }
      if (c == '\\') return keep(State::escape);
      if (is_control(c))
        append_json_escaped(out, {&c, 1});
      else
        out.push_back(c);
      return Read::more;
    case State::escape:
      if (c == 'u') {
        hex_left_ = 4;
        return keep(State::hex);
      }
      if (std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) return Read::failed;
      return keep(State::string);
    case State::hex:
      if (!is_hex(c)) return Read::failed;
      return keep(--hex_left_ == 0 ? State::string : State::hex);
    case State::token:
      if (is_token(c) && token_.size() < kMaxToken) {
        token_.push_back(c);
        if (!is_token_start(token_)) return Read::failed;
        return keep(State::token);
      }
      if (token_ != "true" && token_ != "false" && token_ != "null" && !is_json_number(token_)) return Read::failed;
      taken = false;
      end_value();
      return Read::more;
    default: break;
  }

  if (is_space(c)) return keep(state_);
  switch (state_) {
    case State::value:
    case State::first_value:
      if (c == ']' && state_ == State::first_value) break;
      if (c == '{' || c == '[') {
        if (open_.size() == kMaxDepth) return Read::failed;
        open_.push_back(c);
        return keep(c == '{' ? State::first_key : State::first_value);
      }
      if (c == '"') {
        in_key_ = false;
        return keep(State::string);
      }
      if (!is_digit(c) && c != '-' && c != 't' && c != 'f' && c != 'n') break;
      token_.assign(1, c);
      return keep(State::token);
    case State::first_key:
    case State::key:
      if (c != '"') break;
      in_key_ = true;
      return keep(State::string);
    case State::colon:
      if (c != ':') break;
      return keep(State::value);
    case State::next:
      if (c != ',') break;
      return keep(open_.back() == '{' ? State::key : State::value);
    default: break;
  }
  const bool may_close = state_ == State::next || state_ == State::first_key || state_ == State::first_value;
  if (!may_close || c != (open_.back() == '{' ? '}' : ']')) return Read::failed;
  out.push_back(c);
  open_.pop_back();
  end_value();
  return Read::more;
}

void JsonScanner::end_value() { state_ = open_.empty() ? State::done : State::next; }

Read JsonStringReader::read(Input& in, std::string& decoded, size_t most) {
  for (; !in.empty(); ++in.at) {
    const char c = in.next();
    switch (state_) {
      case State::before:
        if (c != '"') return Read::failed;
        state_ = State::plain;
        break;
      case State::plain:
        if (c == '\\') {
          state_ = State::escape;
          break;
        }
        end_surrogate(decoded);
        if (c == '"') {
          ++in.at;
          return Read::done;
        }
        decoded.push_back(c);
        break;
      case State::escape: {
        if (c == 'u') {
          hex_.clear();
          state_ = State::hex;
          break;
        }
        end_surrogate(decoded);
        constexpr std::string_view kNames = "\"\\/bfnrt", kCodes = "\"\\/\b\f\n\r\t";
        const size_t name = kNames.find(c);
        if (name == kNames.npos) return Read::failed;
        decoded.push_back(kCodes[name]);
        state_ = State::plain;
        break;
      }
      case State::hex:
        if (!is_hex(c)) return Read::failed;
        hex_.push_back(c);
        if (hex_.size() == 4) end_hex(decoded);
        break;
    }
    if (decoded.size() > most) return Read::failed;
  }
  return Read::more;
}

void JsonStringReader::end_hex(std::string& decoded) {
  const auto code = static_cast<char32_t>(std::stoul(hex_, nullptr, 16));
  state_ = State::plain;
  if (code >= 0xDC00 && code < 0xE000 && high_ != 0) {
    append_utf8(decoded, 0x10000 + ((high_ - 0xD800) << 10) + (code - 0xDC00));
    high_ = 0;
    return;
  }
  end_surrogate(decoded);
  if (code >= 0xD800 && code < 0xDC00)
    high_ = code;
  else if (code >= 0xDC00 && code < 0xE000)
    decoded += kReplacementUtf8;
  else
    append_utf8(decoded, code);
}

void JsonStringReader::end_surrogate(std::string& decoded) {
  if (high_ != 0) decoded += kReplacementUtf8;
  high_ = 0;
}

}  // namespace ingot
