#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer_data.h"

namespace ingot {

// The normalizer steps of a tokenizer, in order. Text in and out is valid UTF-8.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  std::string run(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::vector<Regex> regex;  // one, for replace_regex
  };
  std::vector<Step> steps_;
};

// Every occurrence of `pattern` (not empty) in `text` becomes `content`.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

}  // namespace ingot
