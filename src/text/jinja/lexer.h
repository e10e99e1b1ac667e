#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::jinja {

enum class TokenType {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  real,
  op,
  eof,
};

struct Token {
  TokenType type;
  uint32_t pos;      // byte in the source
  std::string text;  // decoded for strings, the operator for operators
  int64_t integer = 0;
  double real = 0;
};

// With \r\n and \r made \n, and one newline at the end removed.
std::string normalize_source(std::string_view source);

// Splits a normalized template into tokens, whitespace control applied as with trim_blocks and lstrip_blocks.
std::vector<Token> tokenize(const std::string& source);

// Throws ingot::Error (bad_file) with the line and the start of what stands at `pos`.
[[noreturn]] void syntax_error(std::string_view source, uint32_t pos, std::string_view message);
// "line 3, at `{{ foo }}`"
std::string describe_position(std::string_view source, uint32_t pos);

}  // namespace ingot::jinja
