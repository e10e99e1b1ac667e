#include "text/bad_words.h"

#include <utility>

#include "core/error.h"

namespace ingot {

std::vector<std::vector<int32_t>> bad_word_ids(const Tokenizer& tokenizer, const std::vector<std::string>& words,
                                               const CancelFlag* cancelled) {
  const EncodeOptions options{.add_special = false, .parse_special = false, .cancelled = cancelled};
  std::vector<std::vector<int32_t>> barred;
  for (const std::string& word : words) {
    if (word.empty()) throw_bad_parameter("bad_words", "has an empty entry");
    std::vector<int32_t> plain = tokenizer.encode(word, options), spaced = tokenizer.encode(" " + word, options);
    const bool same = plain == spaced;
    if (!plain.empty()) barred.push_back(std::move(plain));
    if (!spaced.empty() && !same) barred.push_back(std::move(spaced));
  }
  return barred;
}

}  // namespace ingot
