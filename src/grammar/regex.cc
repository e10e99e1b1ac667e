#include "grammar/regex.h"

#include <algorithm>
#include <optional>

#include "core/printable.h"
#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxPattern = size_t{1} << 16;
constexpr int kMaxNesting = 200;
constexpr uint32_t kMaxCount = 1'000'000;
constexpr uint32_t kMaxCopies = 64;  // of a repeated part with an assertion in it

const CharSet kDigits{{'0', '9'}};
const CharSet kWordChars{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

struct RegexNode {
  enum class Kind { chars, sequence, choice, repeat, start, end, look };
  Kind kind;
  CharSet chars = {};
  std::vector<size_t> parts = {};
  uint32_t least = 0, most = 0;
  bool negative = false;  // of a lookahead
  bool pure = true;       // no assertion within
};

class RegexParser {
 public:
  RegexParser(CharEncoder& encoder, std::string_view pattern, const std::string& place)
      : encoder_(encoder), pool_(encoder.pool()), text_(pattern), place_(place) {
    if (pattern.size() > kMaxPattern) fail("is longer than {} bytes", kMaxPattern);
    if (!is_valid_utf8(pattern)) fail("is not valid UTF-8");
    root_ = choice(0);
    if (at_ < text_.size()) fail("has a ) without a ( before it, at byte {}", at_);
  }

  ExprId lower(RegexMatch match) {
    if (match == RegexMatch::whole) return lower(root_, true, ExprPool::kEmpty);
    const ExprId any = encoder_.any_text();
    // Either the match begins at the start of the text, or after some of it.
    const ExprId first = lower(root_, true, any);
    const ExprId later = lower(root_, false, any);
    return first == later ? pool_.concat(any, first)
                          : pool_.either({first, pool_.concat(pool_.repeat(encoder_.any(), 1), later)});
  }

 private:
  using Kind = RegexNode::Kind;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_bad_parameter(place_, "{}: {}", printable(text_), fmt::format(format, std::forward<Args>(args)...));
  }

  bool more() const { return at_ < text_.size(); }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    const Utf8Char c = decode_valid_utf8(text_.data() + at_);
    at_ += c.length;
    return c.code;
  }
  size_t add(RegexNode node) {
    for (const size_t part : node.parts) node.pure = node.pure && nodes_[part].pure;
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  size_t choice(int depth) {
    if (depth > kMaxNesting) fail("is nested deeper than {} levels", kMaxNesting);
    std::vector<size_t> branches{sequence(depth)};
    while (take("|")) branches.push_back(sequence(depth));
    return branches.size() == 1 ? branches[0] : add({Kind::choice, {}, std::move(branches)});
  }

  size_t sequence(int depth) {
    std::vector<size_t> parts;
    while (more() && !next_is("|") && !next_is(")")) parts.push_back(quantified(depth));
    return parts.size() == 1 ? parts[0] : add({Kind::sequence, {}, std::move(parts)});
  }

  size_t quantified(int depth) {
    const size_t start = at_;
    const size_t part = atom(depth);
    const auto counts = quantifier();
    if (!counts) return part;
    take("?");  // a lazy one matches the same texts
    if (nodes_[part].kind == Kind::start || nodes_[part].kind == Kind::end) fail("repeats an anchor at byte {}", start);
    return add({Kind::repeat, {}, {part}, counts->first, counts->second});
  }

  std::optional<uint32_t> number() {
    const size_t start = at_;
    uint64_t value = 0;
    while (more() && is_digit(text_[at_])) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(text_[at_++] - '0'), kMaxCount + 1);
      if (value > kMaxCount) fail("repeats more than {} times", kMaxCount);
    }
    if (start == at_) return std::nullopt;
    return static_cast<uint32_t>(value);
  }

  std::optional<std::pair<uint32_t, uint32_t>> quantifier() {
    if (take("*")) return {{0, ExprPool::kUnbounded}};
    if (take("+")) return {{1, ExprPool::kUnbounded}};
    if (take("?")) return {{0, 1}};
    if (!next_is("{")) return std::nullopt;
    const size_t start = at_++;  // {n}, {n,} or {n,m}; anything else is the character itself
    const auto least = number();
    if (least) {
      std::optional<uint32_t> most = least;
      if (take(",")) most = number();
      if (take("}")) {
        if (most && *least > *most) fail("has the bounds of a repetition the wrong way round at byte {}", start);
        return {{*least, most.value_or(ExprPool::kUnbounded)}};
      }
    }
    at_ = start;
    return std::nullopt;
  }

  size_t atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return add({Kind::chars, char_class()});
    if (take(".")) return add({Kind::chars, kLineEnds.complement()});
    if (take("^")) return add({.kind = Kind::start, .pure = false});
    if (take("$")) return add({.kind = Kind::end, .pure = false});
    if (take("\\")) return escape();
    if (next_is("*") || next_is("+") || next_is("?")) fail("has nothing to repeat at byte {}", at_);
    const char32_t code = take_char();
    return add({Kind::chars, {{code, code}}});
  }

  size_t group(int depth) {
    const size_t start = at_ - 1;
    bool look = false, negative = false;
    if (take("?")) {
      if (take(":")) {
      } else if (take("=")) {
        look = true;
      } else if (take("!")) {
        look = negative = true;
      } else if (next_is("<=") || next_is("<!")) {
        fail("has a lookbehind at byte {}, which is not supported", start);
      } else if (take("<") || take("P<")) {
        while (more() && !next_is(">")) ++at_;
        if (!take(">")) fail("has the name of a group without an end at byte {}", start);
      } else {
        fail("has a group of an unknown kind at byte {}", start);
      }
    }
    const size_t inner = choice(depth + 1);
    if (!take(")")) fail("has a ( without its ) at byte {}", start);
    if (!look) return inner;
    return add({.kind = Kind::look, .parts = {inner}, .negative = negative, .pure = false});
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      if (!more()) fail("ends within an escape");
      const char c = static_cast<char>(text_[at_++] | 0x20);
      if (!is_digit(c) && (c < 'a' || c > 'f')) fail("has an escape without its {} digits at byte {}", digits, at_ - 1);
      value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
    }
    return value;
  }

  char32_t unicode_escape() {  // behind \u
    if (take("{")) {
      char32_t code = 0;
      while (more() && !next_is("}")) {
        code = code * 16 + hex(1);
        if (code > 0x10FFFF) fail("has an escape over U+10FFFF at byte {}", at_);
      }
      if (!take("}")) fail("ends within an escape");
      return code;
    }
    const char32_t code = hex(4);
    if (code < 0xD800 || code > 0xDBFF || !take("\\u")) return code;
    const char32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) fail("has half a surrogate pair at byte {}", at_);
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }

  // Behind a backslash: \d and its like, or \p{...}.
  std::optional<CharSet> class_escape() {
    if (take("d")) return kDigits;
    if (take("D")) return kDigits.complement();
    if (take("w")) return kWordChars;
    if (take("W")) return kWordChars.complement();
    if (take("s")) return kSpaces;
    if (take("S")) return kSpaces.complement();
    if (!next_is("p{") && !next_is("P{")) return std::nullopt;
    const bool negative = text_[at_] == 'P';
    const size_t start = at_ + 2, end = text_.find('}', start);
    if (end == text_.npos) fail("has a property without an end at byte {}", at_);
    std::string_view name = text_.substr(start, end - start);
    for (const std::string_view prefix : {"General_Category=", "gc="})
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    at_ = end + 1;
    if (name == "Any") return negative ? CharSet{} : CharSet::all();
    if (name == "ASCII") return negative ? CharSet{{0x80, 0x10FFFF}} : CharSet{{0, 0x7F}};
    const CharSet* found = category(name);
    if (found == nullptr) fail("names the property {}, which is not supported", printable(name));
    return negative ? found->complement() : *found;
  }

  char32_t char_escape(bool in_class) {  // behind a backslash
    if (!more()) fail("ends with a backslash");
    const char32_t code = take_char();
    switch (code) {
      case 't': return '\t';
      case 'n': return '\n';
      case 'v': return '\v';
      case 'f': return '\f';
      case 'r': return '\r';
      case 'x': return hex(2);
      case 'u': return unicode_escape();
      case 'c': {
        if (!more() || !is_alpha(text_[at_])) fail("has \\c without a letter at byte {}", at_);
        return static_cast<char32_t>(text_[at_++] & 31);
      }
      case 'b':
        if (in_class) return '\b';
        [[fallthrough]];
      case 'B': fail("has a word boundary at byte {}, which is not supported", at_ - 2);
      case '0':
        if (more() && is_digit(text_[at_])) fail("has an octal escape at byte {}", at_ - 2);
        return 0;
      default: break;
    }
    if (code >= '1' && code <= '9') fail("has a backreference at byte {}, which is not supported", at_ - 2);
    if (code < 0x80 && is_alpha(static_cast<char>(code)))
      fail("has \\{} at byte {}, which is no escape of ECMA-262", static_cast<char>(code), at_ - 2);
    return code;
  }

  size_t escape() {
    if (next_is("k<")) fail("has a backreference at byte {}, which is not supported", at_ - 1);
    if (auto set = class_escape()) return add({Kind::chars, std::move(*set)});
    const char32_t code = char_escape(false);
    return add({Kind::chars, {{code, code}}});
  }

  CharSet char_class() {  // behind [
    const size_t start = at_ - 1;
    const bool negative = take("^");
    CharSet set;
    const auto one = [&](bool& is_set) -> char32_t {
      is_set = false;
      if (!take("\\")) return take_char();
      if (auto inner = class_escape()) {
        set.add(*inner);
        is_set = true;
        return 0;
      }
      return char_escape(true);
    };
    while (!take("]")) {
      if (!more()) fail("has a [ without its ] at byte {}", start);
      bool is_set = false;
      const char32_t first = one(is_set);
      if (next_is("-") && !next_is("-]") && at_ + 1 < text_.size() && !is_set) {
        ++at_;
        const char32_t last = one(is_set);
        if (is_set) {  // a dash beside \d is a dash
          set.add('-', '-');
          set.add(first, first);
        } else if (last < first) {
          fail("has a range the wrong way round at byte {}", at_);
        } else {
          set.add(first, last);
        }
      } else if (!is_set) {
        set.add(first, first);
      }
    }
    return negative ? set.complement() : set;
  }

  // A part without assertions, by itself.
  ExprId pure(size_t index) {
    const RegexNode& node = nodes_[index];
    switch (node.kind) {
      case Kind::chars: return encoder_.chars(node.chars);
      case Kind::sequence: {
        ExprId expr = ExprPool::kEmpty;
        for (size_t i = node.parts.size(); i-- > 0;) expr = pool_.concat(pure(node.parts[i]), expr);
        return expr;
      }
      case Kind::choice: {
        std::vector<ExprId> parts;
        for (const size_t part : node.parts) parts.push_back(pure(part));
        return pool_.either(std::move(parts));
      }
      case Kind::repeat: return pool_.repeat(pure(node.parts[0]), node.least, node.most);
      default: return ExprPool::kEmpty;
    }
  }

  // The part followed by `rest`, which reaches to the end of the text: so an assertion is an intersection.
  // `at_start`: nothing of the text lies before it.
  ExprId lower(size_t index, bool at_start, ExprId rest) {
    const RegexNode& node = nodes_[index];
    if (node.pure) return pool_.concat(pure(index), rest);
    switch (node.kind) {
      case Kind::start: return at_start ? rest : ExprPool::kNothing;
      case Kind::end: return pool_.nullable(rest) ? ExprPool::kEmpty : ExprPool::kNothing;
      case Kind::look: {
        const ExprId ahead = lower(node.parts[0], at_start, ExprPool::kAll);
        return pool_.both({node.negative ? pool_.complement(ahead) : ahead, rest});
      }
      case Kind::choice: {
        std::vector<ExprId> parts;
        for (const size_t part : node.parts) parts.push_back(lower(part, at_start, rest));
        return pool_.either(std::move(parts));
      }
      case Kind::sequence: {
        // From the right; whether a part still is at the start follows from the parts before it.
        std::vector<bool> starts;
        bool unsure = false;  // the parts before may be empty, or not
        for (const size_t part : node.parts) {
          if (unsure && has_start(part)) fail("has a ^ behind a part that may be empty, which is not supported");
          starts.push_back(at_start);
          unsure = unsure || (at_start && !keeps_start(part) && may_be_empty(part));
          at_start = at_start && keeps_start(part);
        }
        for (size_t i = node.parts.size(); i-- > 0;) rest = lower(node.parts[i], starts[i], rest);
        return rest;
      }
      case Kind::repeat: {
        if (node.most > kMaxCopies) fail("repeats a part with an anchor or a lookahead, which is not supported");
        const size_t part = node.parts[0];
        // What may be left out comes last.
        ExprId expr = rest;
        for (uint32_t i = node.least; i < node.most; ++i)
          expr = pool_.either({rest, lower(part, at_start && node.least == 0 && i + 1 == node.most, expr)});
        for (uint32_t i = 0; i < node.least; ++i) expr = lower(part, at_start && i + 1 == node.least, expr);
        return expr;
      }
      default: return ExprPool::kNothing;
    }
  }

  bool has_start(size_t index) const {
    const RegexNode& node = nodes_[index];
    return node.kind == Kind::start || std::ranges::any_of(node.parts, [&](size_t part) { return has_start(part); });
  }

  bool may_be_empty(size_t index) const {
    const RegexNode& node = nodes_[index];
    const auto may = [&](size_t part) { return may_be_empty(part); };
    if (node.kind == Kind::chars) return false;
    if (node.kind == Kind::repeat) return node.least == 0 || may(node.parts[0]);
    if (node.kind == Kind::choice) return std::ranges::any_of(node.parts, may);
    return node.kind != Kind::sequence || std::ranges::all_of(node.parts, may);
  }

  // Whether it never consumes anything.
  bool keeps_start(size_t index) const {
    const RegexNode& node = nodes_[index];
    switch (node.kind) {
      case Kind::start:
      case Kind::end:
      case Kind::look: return true;
      case Kind::chars: return false;
      case Kind::repeat: return node.most == 0 || keeps_start(node.parts[0]);
      case Kind::choice:
      case Kind::sequence: return std::ranges::all_of(node.parts, [&](size_t part) { return keeps_start(part); });
    }
    return false;
  }

  CharEncoder& encoder_;
  ExprPool& pool_;
  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
  std::vector<RegexNode> nodes_;
  size_t root_ = 0;
};

}  // namespace

ExprId parse_regex(CharEncoder& encoder, std::string_view pattern, RegexMatch match, const std::string& place) {
  return RegexParser(encoder, pattern, place).lower(match);
}

}  // namespace ingot::grammar
