#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// One decoded character. `length` is its size in bytes, 1..4.
struct Utf8Char {
  char32_t code;
  uint32_t length;
};

inline constexpr char32_t kReplacementChar = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// Decodes the character at p[0..]. The text must be valid UTF-8 (see is_valid_utf8) and not empty.
inline Utf8Char decode_valid_utf8(const char* p) {
  const auto* b = reinterpret_cast<const unsigned char*>(p);
  if (b[0] < 0x80) return {b[0], 1};
  if (b[0] < 0xE0) return {static_cast<char32_t>((b[0] & 0x1F) << 6 | (b[1] & 0x3F)), 2};
  if (b[0] < 0xF0) return {static_cast<char32_t>((b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F)), 3};
  return {static_cast<char32_t>((b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F)), 4};
}

// What lies at the start of arbitrary bytes.
enum class Utf8Status {
  valid,       // a whole character of `length` bytes
  incomplete,  // the text ends inside a character that more bytes could complete; `length` is all that is left
  invalid,     // no character starts here; `length` is the maximal subpart, to be replaced by one U+FFFD
};
struct Utf8Step {
  Utf8Status status;
  uint32_t length;  // 1..4
};
Utf8Step inspect_utf8(std::string_view text);  // text must not be empty

bool is_valid_utf8(std::string_view text);

// Broken bytes become U+FFFD, one for each maximal subpart, as Python's errors="replace" and Rust's from_utf8_lossy do.
std::string replace_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code);

// Unicode general categories. The names are Unicode's own.
enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn,
};

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
