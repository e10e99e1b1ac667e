#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// A split pattern of a tokenizer.json, in Oniguruma's Ruby syntax, run by PCRE2 with its JIT. Classes such as \p{L} and
// \s are replaced by the ranges of text/unicode.h, so that the Unicode version of PCRE2 does not matter.
class Regex {
 public:
  struct Match {
    size_t begin, end;
  };

  // Throws `declined` when the pattern uses what cannot be translated, bad_file when it is no valid pattern.
  explicit Regex(std::string_view pattern);
  Regex(Regex&&) noexcept;
  ~Regex();

  // Every match in `text` (valid UTF-8) from left to right, none overlapping. Throws bad_file when matching costs too
  // much.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// The pattern as handed to PCRE2; for tests.
std::string translate_pattern(std::string_view pattern);

}  // namespace ingot
