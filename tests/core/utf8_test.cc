#include "core/utf8.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(Utf8, BrokenBytesAreReplacedLikePython) {
  // Left: bytes; right: bytes.decode(errors="replace") of Python 3.
  const std::string r(kReplacementUtf8);
  const std::pair<std::string, std::string> cases[] = {
      {"plain", "plain"},
      {"\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80", "\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80"},
      {"\xFF", r},
      {"\x80\x80", r + r},
      {"\xC3", r},
      {"\xC3(", r + "("},
      {"\xE2\x82", r},
      {"\xE2\x82x", r + "x"},
      {"\xE2(\xA1", r + "(" + r},
      {"\xF0\x9F\x98", r},
      {"\xF0\x9F\x98x", r + "x"},
      {"\xED\xA0\x80", r + r + r},          // a surrogate
      {"\xC0\xAF", r + r},                  // overlong
      {"\xE0\x80\xAF", r + r + r},          // overlong
      {"\xF4\x90\x80\x80", r + r + r + r},  // past U+10FFFF
      {"\xF5\x80", r + r},
      {"\xE4\xBD\xE4\xBD\xA0", r + "\xE4\xBD\xA0"},
      {"\xF1\x80\x80\xC2 \xC2\xA9", r + r + " \xC2\xA9"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(replace_invalid_utf8(bytes), text);
    EXPECT_EQ(is_valid_utf8(bytes), bytes == text);
    EXPECT_TRUE(is_valid_utf8(replace_invalid_utf8(bytes)));
  }
  EXPECT_FALSE(is_valid_utf8("12345678901234567890\xFF"));
  EXPECT_FALSE(is_valid_utf8("1234567\xC3"));
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_TRUE(is_valid_utf8(text)) << static_cast<uint32_t>(code);
    const Utf8Char c = decode_valid_utf8(text.data());
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
    // Any strict beginning of a character could still be completed.
    for (size_t i = 1; i < text.size(); ++i) {
      ASSERT_EQ(inspect_utf8(text.substr(0, i)).status, Utf8Status::incomplete) << static_cast<uint32_t>(code);
    }
  }
}

}  // namespace
}  // namespace ingot
