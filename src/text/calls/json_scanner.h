#pragma once

#include <string>
#include <string_view>

#include "text/calls/input.h"

namespace ingot {

inline bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
// Whether the token is a JSON number.
bool is_json_number(std::string_view token);

// `text` as the inside of a JSON string: quotes, backslashes and control characters escaped.
void append_json_escaped(std::string& out, std::string_view text);

// Reads one JSON value as it comes.
class JsonScanner {
 public:
  // What is read is appended to `out` as it stands, but for control characters in strings, which models write and JSON
  // forbids: they come out escaped. The value's end is found without looking behind it, but for a number's.
  Read read(Input& in, std::string& out);
  // Whether anything but white space was read behind the bracket that opens an object or array.
  bool settled() const { return settled_; }
  bool done() const { return state_ == State::done; }

 private:
  enum class State { value, first_value, first_key, key, colon, next, string, escape, hex, token, done };

  Read take(char c, std::string& out, bool& taken);
  void end_value();

  State state_ = State::value;
  std::string open_;  // brackets that are open, outermost first
  std::string token_;
  int hex_left_ = 0;
  bool in_key_ = false;
  bool settled_ = false;
};

// Reads a JSON string, from its opening quote on, and decodes it.
class JsonStringReader {
 public:
  // failed, too, at the byte with which `decoded` has more than `most`.
  Read read(Input& in, std::string& decoded, size_t most = std::string::npos);

 private:
  enum class State { before, plain, escape, hex };

  void end_hex(std::string& decoded);
  void end_surrogate(std::string& decoded);  // one that found no second half

  State state_ = State::before;
  std::string hex_;
  char32_t high_ = 0;  // the first half of a pair
};

}  // namespace ingot
