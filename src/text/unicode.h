#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"

namespace ingot {

// U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Properties used by the split patterns and the added-token rules, one bit each. They are what Hugging Face
// `tokenizers` sees (scripts/make_unicode_tables.py), so that both split a text at the same places.
enum CharClass : uint8_t {
  kLetter = 1,    // \p{L}
  kNumber = 2,    // \p{N}
  kSpace = 4,     // \s
  kUpper = 8,     // \p{Lu} or \p{Lt}
  kLower = 16,    // \p{Ll}
  kMark = 32,     // \p{M}
  kNumeric = 64,  // what the Digits pre-tokenizer calls a digit
  kWord = 128,    // \w as the added-token rules see it
};

// Two-stage table of CharClass bits; cheap to hold by reference and look up many times.
class CharClasses {
 public:
  static const CharClasses& get();

  uint8_t operator[](char32_t code) const {
    return blocks_[static_cast<size_t>(index_[code >> kShift]) << kShift | (code & (kBlock - 1))];
  }

 private:
  static constexpr uint32_t kShift = 8;
  static constexpr uint32_t kBlock = 1u << kShift;

  CharClasses();

  uint16_t index_[0x110000 >> kShift];
  std::vector<uint8_t> blocks_;
};

struct CodePointRange {
  char32_t first, last;  // both included
};
// Sorted, disjoint ranges of a general category ("Lu"), a group of them ("L", "P"), or of \s ("space") and \w ("word")
// of the pattern engine. Empty when the name is none of these.
std::vector<CodePointRange> property_ranges(std::string_view name);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize_unicode(std::string_view text, NormalForm form);  // text is valid UTF-8
std::string lowercase_unicode(std::string_view text);                   // text is valid UTF-8; character by character

}  // namespace ingot
