#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/byte_alphabet.h"

namespace ingot {
namespace {

TEST(CharClasses, KnownCharacters) {
  const CharClasses& c = CharClasses::get();
  EXPECT_EQ(c['a'], kLetter | kLower | kWord);
  EXPECT_EQ(c['Z'], kLetter | kUpper | kWord);
  EXPECT_EQ(c['7'], kNumber | kNumeric | kWord);
  EXPECT_EQ(c['_'], kWord);
  EXPECT_EQ(c[' '], kSpace);
  EXPECT_EQ(c['!'], 0);
  EXPECT_EQ(c[0x01C5], kLetter | kUpper | kWord);  // title case
  EXPECT_EQ(c[0x4E2D], kLetter | kWord);
  EXPECT_EQ(c[0x0301], kMark | kWord);
  EXPECT_EQ(c[0x00BD], kNumber | kNumeric);  // one half
  for (char32_t space : {0x9, 0xA, 0xB, 0xC, 0xD, 0x85, 0xA0, 0x1680, 0x2000, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    EXPECT_EQ(c[space], kSpace) << static_cast<uint32_t>(space);
  EXPECT_EQ(c[0x180E] & kSpace, 0);  // not since Unicode 6.3
  EXPECT_EQ(c[0x200B] & kSpace, 0);
  EXPECT_EQ(c[0x31350], kLetter | kWord);  // Unicode 15
  EXPECT_EQ(c[0x10FFFF], 0);
}

TEST(CharClasses, RangesAgreeWithTheTable) {
  const CharClasses& c = CharClasses::get();
  const std::pair<const char*, uint8_t> cases[] = {
      {"L", kLetter}, {"N", kNumber}, {"M", kMark}, {"Ll", kLower}, {"space", kSpace}};
  for (const auto& [name, bit] : cases) {
    std::vector<bool> in(0x110000, false);
    char32_t next = 0;
    for (const CodePointRange& range : property_ranges(name)) {
      EXPECT_GE(range.first, next);
      next = range.last + 1;
      for (char32_t code = range.first; code <= range.last; ++code) in[code] = true;
    }
    for (char32_t code = 0; code < 0x110000; ++code)
      ASSERT_EQ(in[code], (c[code] & bit) != 0) << name << static_cast<uint32_t>(code);
  }
  EXPECT_TRUE(property_ranges("Latin").empty());
  EXPECT_TRUE(property_ranges("").empty());
}

TEST(Normalize, Forms) {
  EXPECT_EQ(normalize_unicode("plain", NormalForm::nfc), "plain");
  EXPECT_EQ(normalize_unicode("e\u0301", NormalForm::nfc), "\u00e9");
  EXPECT_EQ(normalize_unicode("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("\ufb01", NormalForm::nfc), "\ufb01");
  EXPECT_EQ(normalize_unicode("\ufb01 \u00bd", NormalForm::nfkc), "fi 1\u20442");
  EXPECT_EQ(normalize_unicode("\u1112\u1161\u11ab", NormalForm::nfc), "\ud55c");
  EXPECT_EQ(normalize_unicode("\u212b", NormalForm::nfkd), "A\u030a");
  EXPECT_EQ(normalize_unicode(std::string("a\0\u00e9", 4), NormalForm::nfc), std::string("a\0\u00e9", 4));
}

TEST(Normalize, Lowercase) {
  EXPECT_EQ(lowercase_unicode("ABC \u00c9\u0416 \u0130 \u03a3"), "abc \u00e9\u0436 i\u0307 \u03c3");
}

TEST(ByteAlphabet, IsABijectionOfAllBytes) {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  std::string bytes, back;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  ASSERT_TRUE(alphabet.decode(alphabet.encode(bytes), back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(alphabet.encode(" \n~"), "\u0120\u010a~");
  EXPECT_FALSE(alphabet.decode("a b", back));
  EXPECT_FALSE(alphabet.decode("\u4e2d", back));
  EXPECT_FALSE(alphabet.decode("\u0144", back));
}

}  // namespace
}  // namespace ingot
