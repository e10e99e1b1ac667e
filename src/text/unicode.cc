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

struct CategoryRange {
  char32_t first, last;  // both included
  std::string_view category;
};

#include "text/unicode_tables.inc"
static_assert(UTF8PROC_VERSION_MAJOR > 2 || UTF8PROC_VERSION_MINOR >= 7, "the table starts from Unicode 14");

// By utf8proc's number of the category.
constexpr std::string_view kCategoryNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                               "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                               "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

constexpr char32_t kEnd = 0x110000;

// Letters of the alphabet in circles and squares, which count as parts of words.
constexpr CodePointRange kCircledLetters[] = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
// White space that is no separator by category.
constexpr CodePointRange kControlSpaces[] = {{0x9, 0xd}, {0x85, 0x85}};
// Digits that are younger than the categories: Rust's, not the pattern engine's.
constexpr CodePointRange kYoungDigits[] = {{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}};
constexpr CodePointRange kJoinControls[] = {{0x200c, 0x200d}};

// All code points in runs of one category, in order. Made once.
const std::vector<CategoryRange>& category_runs() {
  static const std::vector<CategoryRange> runs = [] {
    std::vector<CategoryRange> out;
    const CategoryRange* own = std::begin(kCategoryRanges);
    for (char32_t c = 0; c < kEnd; ++c) {
      if (c == 0x40000) {  // planes that hold nothing
        out.back().last = 0xdffff;
        c = 0xe0000;
      }
      if (own != std::end(kCategoryRanges) && c > own->last) ++own;
      const std::string_view category = own != std::end(kCategoryRanges) && c >= own->first
                                            ? own->category
                                            : kCategoryNames[utf8proc_category(static_cast<utf8proc_int32_t>(c))];
      if (!out.empty() && out.back().category == category) {
        out.back().last = c;
      } else {
        out.push_back({c, c, category});
      }
    }
    return out;
  }();
  return runs;
}

uint8_t class_of(std::string_view category) {
  switch (category[0]) {
    case 'L': {
      const bool upper = category == "Lu" || category == "Lt";
      return kLetter | kWord | (upper ? kUpper : category == "Ll" ? kLower : 0);
    }
    case 'M': return kMark | kWord;
    case 'N': return kNumber | kNumeric | (category == "No" ? 0 : kWord);
    case 'P': return category == "Pc" ? kWord : 0;
    case 'Z': return kSpace;
    default: return 0;
  }
}

}  // namespace

const CharClasses& CharClasses::get() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::vector<uint8_t> flat(kEnd, 0);
  for (const CategoryRange& run : category_runs())
    std::fill(flat.begin() + run.first, flat.begin() + run.last + 1, class_of(run.category));
  auto add = [&flat](std::span<const CodePointRange> ranges, uint8_t bit) {
    for (const CodePointRange& r : ranges)
      for (char32_t c = r.first; c <= r.last; ++c) flat[c] |= bit;
  };
  add(kControlSpaces, kSpace);
  add(kYoungDigits, kNumeric);
  add(kCircledLetters, kWord);
  add(kJoinControls, kWord);

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
  std::vector<CodePointRange> out;
  const auto add = [](std::vector<CodePointRange>& ranges, CodePointRange more) {
    if (!ranges.empty() && ranges.back().last + 1 == more.first) {
      ranges.back().last = more.last;
    } else {
      ranges.push_back(more);
    }
  };
  const auto of_class = [&add](uint8_t bit) {
    std::vector<CodePointRange> ranges;
    const CharClasses& classes = CharClasses::get();
    for (char32_t c = 0; c < kEnd; ++c)
      if ((classes[c] & bit) != 0 && c != kJoinControls[0].first && c != kJoinControls[0].last) add(ranges, {c, c});
    return ranges;
  };
  static const std::vector<CodePointRange> spaces = of_class(kSpace);
  static const std::vector<CodePointRange> words = of_class(kWord);
  if (name == "space") return spaces;
  if (name == "word") return words;
  for (const CategoryRange& run : category_runs())
    if (run.category == name || (name.size() == 1 && run.category[0] == name[0])) add(out, {run.first, run.last});
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
