#include "grammar/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

struct CategoryName {
  std::string_view brief, full;
  std::array<utf8proc_category_t, 5> members;  // 0 (unassigned) fills the rest
};
constexpr CategoryName kCategories[] = {
    {"Lu", "Uppercase_Letter", {UTF8PROC_CATEGORY_LU}},
    {"Ll", "Lowercase_Letter", {UTF8PROC_CATEGORY_LL}},
    {"Lt", "Titlecase_Letter", {UTF8PROC_CATEGORY_LT}},
    {"Lm", "Modifier_Letter", {UTF8PROC_CATEGORY_LM}},
    {"Lo", "Other_Letter", {UTF8PROC_CATEGORY_LO}},
    {"L",
     "Letter",
     {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO}},
    {"LC", "Cased_Letter", {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT}},
    {"Mn", "Nonspacing_Mark", {UTF8PROC_CATEGORY_MN}},
    {"Mc", "Spacing_Mark", {UTF8PROC_CATEGORY_MC}},
    {"Me", "Enclosing_Mark", {UTF8PROC_CATEGORY_ME}},
    {"M", "Mark", {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME}},
    {"Nd", "Decimal_Number", {UTF8PROC_CATEGORY_ND}},
    {"Nl", "Letter_Number", {UTF8PROC_CATEGORY_NL}},
    {"No", "Other_Number", {UTF8PROC_CATEGORY_NO}},
    {"N", "Number", {UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO}},
    {"Nd", "digit", {UTF8PROC_CATEGORY_ND}},
    {"Zs", "Space_Separator", {UTF8PROC_CATEGORY_ZS}},
    {"Z", "Separator", {UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP}},
    {"Sm", "Math_Symbol", {UTF8PROC_CATEGORY_SM}},
    {"Sc", "Currency_Symbol", {UTF8PROC_CATEGORY_SC}},
    {"S", "Symbol", {UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SO}},
    {"Cc", "Control", {UTF8PROC_CATEGORY_CC}},
};
constexpr std::array kPunctuation = {UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS,
                                     UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PF,
                                     UTF8PROC_CATEGORY_PO};

struct CategoryRun {
  char32_t first, last;
  utf8proc_category_t category;
};

// All of Unicode in one pass, once, and only for a program that asks: some milliseconds.
const std::vector<CategoryRun>& category_runs() {
  static const auto* const runs = [] {
    auto* made = new std::vector<CategoryRun>;
    for (char32_t code = 0; code <= kLastCode; ++code) {
      const utf8proc_category_t kind = utf8proc_category(static_cast<utf8proc_int32_t>(code));
      if (made->empty() || made->back().category != kind)
        made->push_back({code, code, kind});
      else
        made->back().last = code;
    }
    return made;
  }();
  return *runs;
}

template <typename Members>
CharSet with_category(const Members& members) {
  std::vector<std::pair<char32_t, char32_t>> ranges;
  for (const CategoryRun& run : category_runs())
    if (run.category != UTF8PROC_CATEGORY_CN && std::ranges::find(members, run.category) != std::end(members))
      ranges.emplace_back(run.first, run.last);
  return CharSet(std::move(ranges));
}

}  // namespace

CharSet::CharSet(std::vector<std::pair<char32_t, char32_t>> ranges) : ranges_(std::move(ranges)) { tidy(); }
CharSet::CharSet(std::initializer_list<std::pair<char32_t, char32_t>> ranges) : ranges_(ranges) { tidy(); }

CharSet CharSet::all() { return {{0, kLastCode}}; }

void CharSet::add(char32_t first, char32_t last) {
  ranges_.emplace_back(first, last);
  tidy();
}

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  tidy();
}

void CharSet::tidy() {
  std::vector<std::pair<char32_t, char32_t>> cut;
  for (const auto& [first, last] : ranges_) {
    if (first < kFirstSurrogate) cut.emplace_back(first, std::min<char32_t>(last, kFirstSurrogate - 1));
    if (last > kLastSurrogate) cut.emplace_back(std::max<char32_t>(first, kLastSurrogate + 1), last);
  }
  std::ranges::sort(cut);
  ranges_.clear();
  for (const auto& [first, last] : cut) {
    if (first > last) continue;
    if (!ranges_.empty() && first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, last);
    else
      ranges_.emplace_back(first, last);
  }
}

CharSet CharSet::complement() const {
  CharSet rest;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCode) rest.ranges_.emplace_back(next, kLastCode);
  rest.tidy();
  return rest;
}

bool CharSet::has(char32_t code) const {
  return std::ranges::any_of(ranges_, [&](const auto& range) { return range.first <= code && code <= range.second; });
}

const CharSet* category(std::string_view name) {
  static const auto* const sets = [] {
    auto* made = new std::map<std::string, CharSet, std::less<>>;
    for (const CategoryName& entry : kCategories)
      (*made)[std::string(entry.brief)] = (*made)[std::string(entry.full)] = with_category(entry.members);
    (*made)["P"] = (*made)["Punctuation"] = with_category(kPunctuation);
    return made;
  }();
  const auto found = sets->find(name);
  return found == sets->end() ? nullptr : &found->second;
}

ExprId DigitRange::between(const std::vector<uint32_t>& first, const std::vector<uint32_t>& last) const {
  return std::ranges::lexicographical_compare(last, first) ? ExprPool::kNothing : from(first, last, 0);
}

ExprId DigitRange::from(const std::vector<uint32_t>& first, const std::vector<uint32_t>& last, size_t place) const {
  if (place == first.size()) return ExprPool::kEmpty;
  const auto ends_at = [&](const std::vector<uint32_t>& digits, const std::vector<uint32_t>& bound) {
    return std::equal(digits.begin() + static_cast<ptrdiff_t>(place) + 1, digits.end(),
                      bound.begin() + static_cast<ptrdiff_t>(place) + 1);
  };
  uint32_t low = first[place], high = last[place];
  if (low == high) return pool.concat(leaf(place, low, low), from(first, last, place + 1));
  std::vector<ExprId> parts;
  if (!ends_at(first, least)) {
    parts.push_back(pool.concat(leaf(place, low, low), from(first, most, place + 1)));
    ++low;
  }
  if (!ends_at(last, most)) {
    parts.push_back(pool.concat(leaf(place, high, high), from(least, last, place + 1)));
    --high;
  }
  if (low <= high) parts.push_back(pool.concat(leaf(place, low, high), from(least, most, place + 1)));
  return pool.either(std::move(parts));
}

ExprId hex4(ExprPool& pool, uint32_t first, uint32_t last) {
  const DigitRange hex{pool, {0, 0, 0, 0}, {15, 15, 15, 15}, [&pool](size_t, uint32_t low, uint32_t high) {
                         ByteSet set;
                         for (uint32_t digit = low; digit <= high; ++digit) {
                           set.add("0123456789abcdef"[digit]);
                           set.add("0123456789ABCDEF"[digit]);
                         }
                         return pool.bytes(set);
                       }};
  const auto digits = [](uint32_t value) {
    return std::vector<uint32_t>{value >> 12 & 15, value >> 8 & 15, value >> 4 & 15, value & 15};
  };
  return hex.between(digits(first), digits(last));
}

ExprId CharEncoder::utf8(const CharSet& set) {
  std::vector<ExprId> parts;
  ByteSet ascii;
  static constexpr char32_t kLast[] = {0x7F, 0x7FF, 0xFFFF, kLastCode};  // by number of bytes
  for (auto [first, last] : set.ranges()) {
    for (size_t length = 1; length <= 4 && first <= last; ++length) {
      if (first > kLast[length - 1]) continue;
      const char32_t end = std::min(last, kLast[length - 1]);
      if (length == 1) {
        ascii = ascii | ByteSet::range(first, end);
      } else {
        DigitRange tails{pool_, {}, {}, [this](size_t, uint32_t low, uint32_t high) {
                           return pool_.bytes(ByteSet::range(low, high));
                         }};
        tails.least.assign(length, 0x80);
        tails.most.assign(length, 0xBF);
        const auto digits = [](char32_t code) {
          std::string bytes;
          append_utf8(bytes, code);
          std::vector<uint32_t> out;
          for (const char byte : bytes) out.push_back(static_cast<uint8_t>(byte));
          return out;
        };
        parts.push_back(tails.between(digits(first), digits(end)));
      }
      first = end + 1;
    }
  }
  parts.push_back(pool_.bytes(ascii));
  return pool_.either(std::move(parts));
}

// \uXXXX of a range above ASCII, as one escape or a pair of surrogates.
ExprId CharEncoder::json_escapes(char32_t first, char32_t last) {
  std::vector<ExprId> parts;
  const ExprId mark = pool_.literal("\\u");
  if (first <= 0xFFFF) {
    parts.push_back(pool_.concat(mark, hex4(pool_, first, std::min<char32_t>(last, 0xFFFF))));
    first = 0x10000;
  }
  if (first <= last) {
    const DigitRange pairs{pool_, {0xD800, 0xDC00}, {0xDBFF, 0xDFFF}, [&](size_t, uint32_t low, uint32_t high) {
                             return pool_.concat(mark, hex4(pool_, low, high));
                           }};
    const auto digits = [](char32_t code) {
      return std::vector<uint32_t>{0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)};
    };
    parts.push_back(pairs.between(digits(first), digits(last)));
  }
  return pool_.either(std::move(parts));
}

ExprId CharEncoder::chars(const CharSet& set) {
  const auto known = known_.find(set);
  if (known != known_.end()) return known->second;
  ExprId expr = ExprPool::kNothing;
  if (encoding_ == Encoding::text) {
    expr = utf8(set);
  } else {
    std::vector<ExprId> parts;
    for (const auto& [first, last] : set.ranges())
      if (last >= 0x80) parts.push_back(json_escapes(std::max<char32_t>(first, 0x80), last));
    for (char32_t code = 0; code < 0x20; ++code) {
      if (!set.has(code)) continue;
      const char* const brief = code == '\b'   ? "\\b"
                                : code == '\f' ? "\\f"
                                : code == '\n' ? "\\n"
                                : code == '\r' ? "\\r"
                                : code == '\t' ? "\\t"
                                               : nullptr;
      if (brief != nullptr) parts.push_back(pool_.literal(brief));
      parts.push_back(pool_.concat(pool_.literal("\\u"), hex4(pool_, code, code)));
    }
    if (set.has('"')) parts.push_back(pool_.literal("\\\""));
    if (set.has('\\')) parts.push_back(pool_.literal("\\\\"));
    CharSet escaped = set.complement();  // the plain form is for what is in the set and needs no escape
    escaped.add(0, 0x1F);
    escaped.add('"', '"');
    escaped.add('\\', '\\');
    parts.push_back(utf8(escaped.complement()));
    expr = pool_.either(std::move(parts));
  }
  known_.emplace(set, expr);
  return expr;
}

ExprId CharEncoder::any() { return chars(CharSet::all()); }

ExprId CharEncoder::literal(std::string_view text) {
  std::vector<ExprId> parts;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_valid_utf8(text.data() + at);
    at += c.length;
    const bool plain =
        c.code < 0x80 && (encoding_ == Encoding::text || (c.code >= 0x20 && c.code != '"' && c.code != '\\'));
    parts.push_back(plain ? pool_.bytes(ByteSet::of(static_cast<uint8_t>(c.code))) : chars({{c.code, c.code}}));
  }
  ExprId expr = ExprPool::kEmpty;
  for (size_t i = parts.size(); i-- > 0;) expr = pool_.concat(parts[i], expr);
  return expr;
}

}  // namespace ingot::grammar
