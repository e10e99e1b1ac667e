#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "core/error.h"

namespace ingot {
namespace {

using enum Category;

struct CategoryRun {
  char32_t first;
  Category category;
};

#include "text/unicode_tables.inc"

constexpr std::string_view kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                               "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                               "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

constexpr char32_t kEnd = 0x110000;

uint8_t class_of(Category category) {
  switch (category) {
    case Lu:
    case Lt: return kLetter | kUpper;
    case Ll: return kLetter | kLower;
    case Lm:
    case Lo: return kLetter;
    case Mn:
    case Mc:
    case Me: return kMark;
    case Nd:
    case Nl:
    case No: return kNumber;
    default: return 0;
  }
}

}  // namespace

Utf8Step inspect_utf8(std::string_view text) {
  const auto* b = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char lead = b[0];
  if (lead < 0x80) return {Utf8Status::valid, 1};
  uint32_t length;
  unsigned char low = 0x80, high = 0xBF;  // limits of the second byte: no overlong forms, surrogates or code > 10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::invalid, 1};
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::incomplete, i};
    if (b[i] < low || b[i] > high) return {Utf8Status::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::valid, length};
}

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Step step = inspect_utf8(text.substr(i));
    if (step.status != Utf8Status::valid) return false;
    i += step.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = inspect_utf8(text.substr(i));
    if (step.status == Utf8Status::valid) {
      out.append(text.substr(i, step.length));
    } else {
      out.append(kReplacementUtf8);
    }
    i += step.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

const CharClasses& CharClasses::get() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::vector<uint8_t> flat(kEnd, 0);
  for (size_t i = 0; i < std::size(kCategoryRuns); ++i) {
    const char32_t end = i + 1 < std::size(kCategoryRuns) ? kCategoryRuns[i + 1].first : kEnd;
    std::fill(flat.begin() + kCategoryRuns[i].first, flat.begin() + end, class_of(kCategoryRuns[i].category));
  }
  auto add = [&flat](std::span<const CodePointRange> ranges, uint8_t bit) {
    for (const CodePointRange& r : ranges)
      for (char32_t c = r.first; c <= r.last; ++c) flat[c] |= bit;
  };
  add(kSpaceRanges, kSpace);
  add(kNumericRanges, kNumeric);
  add(kWordRanges, kWord);

  std::map<std::array<uint8_t, kBlock>, uint16_t> seen;
  for (char32_t start = 0; start < kEnd; start += kBlock) {
    std::array<uint8_t, kBlock> block;
    std::copy_n(flat.begin() + start, kBlock, block.begin());
    const auto [it, is_new] = seen.emplace(block, static_cast<uint16_t>(seen.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_[start >> kShift] = it->second;
  }
}

std::vector<CodePointRange> property_ranges(std::string_view name) {
  if (name == "space") return {std::begin(kSpaceRanges), std::end(kSpaceRanges)};
  if (name == "word") return {std::begin(kPatternWordRanges), std::end(kPatternWordRanges)};
  std::vector<CodePointRange> out;
  for (size_t i = 0; i < std::size(kCategoryRuns); ++i) {
    const std::string_view category = kCategoryNames[static_cast<size_t>(kCategoryRuns[i].category)];
    if (category != name && !(name.size() == 1 && category[0] == name[0])) continue;
    const char32_t end = i + 1 < std::size(kCategoryRuns) ? kCategoryRuns[i + 1].first : kEnd;
    if (!out.empty() && out.back().last + 1 == kCategoryRuns[i].first) {
      out.back().last = end - 1;
    } else {
      out.push_back({kCategoryRuns[i].first, end - 1});
    }
  }
  return out;
}

std::string normalize_unicode(std::string_view text, NormalForm form) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  if (ascii) return std::string(text);
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalForm::nfc: options |= UTF8PROC_COMPOSE; break;
    case NormalForm::nfd: options |= UTF8PROC_DECOMPOSE; break;
    case NormalForm::nfkc: options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT; break;
    case NormalForm::nfkd: options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT; break;
  }
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&free)> owner(result, &free);
  if (size < 0) throw_error(ErrorKind::internal, "Unicode normalization failed: {}", utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

std::string lowercase_unicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_valid_utf8(text.data() + i);
    i += c.length;
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    // The one character whose lower case is two: I with a dot above.
    if (c.code == 0x130) append_utf8(out, 0x307);
  }
  return out;
}

}  // namespace ingot
