#pragma once

#include <string>

#include "text/calls/input.h"

namespace ingot {

// Reads one literal of Python (text, number, True, None, list, tuple, dict; also as JSON writes them) and writes it as
// JSON.
class PythonLiteral {
 public:
  PythonLiteral() = default;
  // as_text: a number or word that stands alone is the string of what is written.
  explicit PythonLiteral(bool as_text) : as_text_(as_text) {}
  Read read(Input& in, std::string& json);

 private:
  enum class State { value, first, key, first_key, colon, next, string, escape, digits, token, done };

  bool take(char c, std::string& json, bool& taken);  // false: not Python
  bool begin_value(char c, std::string& json);
  bool take_escape(char c, std::string& json);
  bool end_digits(std::string& json);
  bool end_token(std::string& json);
  void end_value();

  State state_ = State::value;
  bool as_text_ = false;
  std::string open_;  // closing brackets that are due, the innermost last
  std::string token_;
  char quote_ = 0;
  size_t digits_ = 0;  // of an escape
  bool in_key_ = false;
  bool comma_ = false;  // is due before the next element
};

}  // namespace ingot
