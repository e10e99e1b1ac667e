#include "text/calls/python_literal.h"

#include <fmt/format.h>

#include "core/utf8.h"
#include "text/calls/json_scanner.h"

namespace ingot {
namespace {

constexpr size_t kMaxNesting = 256;
constexpr size_t kMaxWord = 512;  // bytes of a number or word

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '+' || c == '.';
}

}  // namespace

Read PythonLiteral::read(Input& in, std::string& json) {
  while (state_ != State::done) {
    if (in.empty()) {
      if (!in.ended || state_ != State::token || !open_.empty()) return Read::more;
      if (!end_token(json)) return Read::failed;
      continue;
    }
    bool taken = true;
    if (!take(in.next(), json, taken)) return Read::failed;
    if (taken) ++in.at;
  }
  return Read::done;
}

bool PythonLiteral::take(char c, std::string& json, bool& taken) {
  switch (state_) {
    case State::string:
      if (c == quote_) {
        json.push_back('"');
        end_value();
      } else if (c == '\\') {
        state_ = State::escape;
      } else {
        append_json_escaped(json, {&c, 1});
      }
      return true;
    case State::escape: return take_escape(c, json);
    case State::digits:
      if (!is_hex(c)) return false;  // before it is taken: it may be the first byte of a character
      token_.push_back(c);
      return token_.size() < digits_ || end_digits(json);
    case State::token:
      if (is_word(c)) {
        token_.push_back(c);
        return token_.size() <= kMaxWord;
      }
      taken = false;
      return end_token(json);
    default: break;
  }
  if (is_space(c)) return true;
  const bool may_close = state_ == State::next || state_ == State::first || state_ == State::first_key ||
                         ((state_ == State::value || state_ == State::key) && comma_);
  if (may_close && !open_.empty() && c == open_.back()) {
    json.push_back(c == ')' ? ']' : c);
    open_.pop_back();
    comma_ = false;
    end_value();
    return true;
  }
  switch (state_) {
    case State::colon:
      if (c != ':') return false;
      json += ": ";
      state_ = State::value;
      return true;
    case State::next:
      if (c != ',') return false;
      comma_ = true;
      state_ = open_.back() == '}' ? State::key : State::value;
      return true;
    default: return begin_value(c, json);
  }
}

bool PythonLiteral::begin_value(char c, std::string& json) {
  if (comma_) json += ", ";
  comma_ = false;
  in_key_ = state_ == State::key || state_ == State::first_key;
  if (c == '\'' || c == '"') {
    quote_ = c;
    json.push_back('"');
    state_ = State::string;
    return true;
  }
  if (is_word(c)) {
    token_.assign(1, c);
    state_ = State::token;
    return true;
  }
  const size_t kind = std::string_view("[({").find(c);
  if (in_key_ || kind == std::string_view::npos || open_.size() == kMaxNesting) return false;
  json.push_back("[[{"[kind]);
  open_.push_back("])}"[kind]);
  state_ = c == '{' ? State::first_key : State::first;
  return true;
}

bool PythonLiteral::take_escape(char c, std::string& json) {
  state_ = State::string;
  constexpr std::string_view kNames = "\\'\"abfnrtv0", kCodes{"\\'\"\a\b\f\n\r\t\v\0", 11};
  if (const size_t name = kNames.find(c); name != kNames.npos) {
    append_json_escaped(json, kCodes.substr(name, 1));
  } else if (c == 'x' || c == 'u' || c == 'U') {
    digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    token_.clear();
    state_ = State::digits;
  } else if (c != '\n') {  // Python keeps a backslash that means nothing
    json += "\\\\";
    append_json_escaped(json, {&c, 1});
  }
  return true;
}

bool PythonLiteral::end_digits(std::string& json) {
  state_ = State::string;
  const auto code = static_cast<char32_t>(std::stoul(token_, nullptr, 16));
  if (code < 0x20 || code == '"' || code == '\\' || (code >= 0xD800 && code < 0xE000)) {
    json += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    return true;
  }
  if (code > 0x10FFFF) return false;
  append_utf8(json, code);
  return true;
}

bool PythonLiteral::end_token(std::string& json) {
  std::string word = token_;
  if (word == "True") word = "true";
  if (word == "False") word = "false";
  if (word == "None") word = "null";
  if (word.starts_with('+')) word.erase(0, 1);
  if (word != "true" && word != "false" && word != "null" && !is_json_number(word)) return false;
  if (in_key_ || (as_text_ && open_.empty() && word != "null"))
    json += '"' + token_ + '"';
  else
    json += word;
  end_value();
  return true;
}

void PythonLiteral::end_value() {
  if (in_key_)
    state_ = State::colon;
  else
    state_ = open_.empty() ? State::done : State::next;
  in_key_ = false;
}

}  // namespace ingot
