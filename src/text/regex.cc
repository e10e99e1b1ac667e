#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "core/error.h"
#include "text/unicode.h"

namespace ingot {
namespace {

// Backtracking steps allowed for one match: far above any real pattern, reached within about a second.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kLongestPattern = 16 * 1024;

std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> out;
  char32_t next = 0;
  for (const CodePointRange& r : ranges) {
    if (r.first > next) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= 0x10FFFF) out.push_back({next, 0x10FFFF});
  return out;
}

// Ranges as they stand inside [...]. Surrogates are no characters in UTF mode, so they are cut out.
std::string class_body(const std::vector<CodePointRange>& ranges) {
  std::string out;
  auto add = [&out](char32_t first, char32_t last) {
    if (first > last) return;
    out += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(first));
    if (last > first) out += fmt::format("-\\x{{{:x}}}", static_cast<uint32_t>(last));
  };
  for (const CodePointRange& r : ranges) {
    add(r.first, std::min<char32_t>(r.last, 0xD7FF));
    add(std::max<char32_t>(r.first, 0xE000), r.last);
  }
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        begin_atom();
        escape(false);
      } else if (c == '[') {
        begin_atom();
        bracket();
      } else if (c == '(') {
        open_.push_back(out_.size());
        copy(1);
        // (?i: (?= (?! (?<= (?<! (?> are written alike in both.
        if (at_ < in_.size() && in_[at_] == '?') copy(1);
      } else if (c == ')') {
        if (open_.empty()) fail("unbalanced )");
        atom_ = open_.back();
        open_.pop_back();
        copy(1);
      } else if (c == '{' && interval()) {
        // handled
      } else {
        if (c != '*' && c != '+' && c != '?' && c != '|' && c != '^' && c != '$') begin_atom();
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw_error(ErrorKind::declined, "split pattern \"{}\": {} at offset {} is not supported", in_, what, at_);
  }

  void begin_atom() { atom_ = out_.size(); }

  void copy(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  // X{n,m}+ is possessive in PCRE2, but a repeated repeat in Oniguruma.
  bool interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    if (end == at_ + 1 || end >= in_.size() || in_[end] != '}') return false;
    std::string_view bounds = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    // {,m} means {0,m}
    out_ += bounds[0] == ',' ? fmt::format("{{0{}}}", bounds) : fmt::format("{{{}}}", bounds);
    if (at_ < in_.size() && in_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return true;
  }

  // An escape, outside or inside a bracket.
  void escape(bool in_bracket) {
    if (at_ + 1 >= in_.size()) fail("a lone backslash");
    const char c = in_[at_ + 1];
    std::string_view name;
    bool negated = false;
    size_t length = 2;
    switch (c) {
      case 's':
      case 'S':
        name = "space";
        negated = c == 'S';
        break;
      case 'w':
      case 'W':
        name = "word";
        negated = c == 'W';
        break;
      case 'd':
      case 'D':
        name = "Nd";
        negated = c == 'D';
        break;
      case 'p':
      case 'P': {
        negated = c == 'P';
        const size_t close = in_.find('}', at_);
        if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) fail("a bare \\p");
        name = in_.substr(at_ + 3, close - at_ - 3);
        if (!name.empty() && name[0] == '^') {
          negated = !negated;
          name.remove_prefix(1);
        }
        length = close + 1 - at_;
        if (name == "Han" || name == "Hiragana" || name == "Katakana" || name == "Hangul" || name == "Thai" ||
            name == "Latin" || name == "Cyrillic" || name == "Greek" || name == "Arabic" || name == "Devanagari") {
          out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
          at_ += length;
          return;
        }
        break;
      }
      case 'h':
      case 'H':
        if (c == 'H') fail("\\H");
        out_ += in_bracket ? "0-9a-fA-F" : "[0-9a-fA-F]";
        at_ += 2;
        return;
      case 'x':
      case 'u':
      case 'k':
      case 'g':
      case 'K':
      case 'R':
      case 'X':
      case 'y':
      case 'Y':
      case 'N':
      case 'O':
      case 'c':
      case 'C':
      case 'M':
      case 'G': hex_escape(c); return;
      default: copy(2); return;
    }
    std::vector<CodePointRange> ranges = property_ranges(name);
    if (ranges.empty()) fail(fmt::format("the property {}", name));
    if (in_bracket) {
      out_ += class_body(negated ? complement(ranges) : ranges);
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", class_body(ranges));
    }
    at_ += length;
  }

  void hex_escape(char c) {
    size_t first = at_ + 2;
    size_t longest = 2;
    if (c == 'u') longest = 4;
    if (c != 'x' && c != 'u') fail(fmt::format("\\{}", c));
    const bool braced = c == 'x' && first < in_.size() && in_[first] == '{';
    if (braced) {
      ++first;
      longest = 8;
    }
    uint32_t code = 0;
    size_t i = first;
    for (; i < in_.size() && i < first + longest; ++i) {
      const char h = in_[i];
      int digit = h >= '0' && h <= '9'   ? h - '0'
                  : h >= 'a' && h <= 'f' ? h - 'a' + 10
                  : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                         : -1;
      if (digit < 0) break;
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (i == first || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a bad hexadecimal escape");
    if (braced && (i >= in_.size() || in_[i] != '}')) fail("a bad hexadecimal escape");
    out_ += fmt::format("\\x{{{:x}}}", code);
    at_ = braced ? i + 1 : i;
  }

  void bracket() {
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    bool first = true;
    while (true) {
      if (at_ >= in_.size()) fail("an unclosed [");
      const char c = in_[at_];
      if (c == ']' && !first) break;
      first = false;
      if (c == '\\') {
        escape(true);
      } else if (c == '[') {
        fail("a class inside a class");
      } else if (c == '&' && at_ + 1 < in_.size() && in_[at_ + 1] == '&') {
        fail("&&");
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;           // where the last repeatable thing starts in out_
  std::vector<size_t> open_;  // where open groups start in out_
};

}  // namespace

std::string translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  std::string pattern;  // as given, for errors
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

Regex::Regex(std::string_view pattern) : code_(std::make_unique<Code>()) {
  if (pattern.size() > kLongestPattern) {
    throw_error(ErrorKind::bad_file, "a split pattern of {} bytes is longer than {}", pattern.size(), kLongestPattern);
  }
  code_->pattern = std::string(pattern);
  const std::string translated = translate_pattern(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &offset, context.get());
  if (!code_->code) {
    PCRE2_UCHAR text[160];
    pcre2_get_error_message(error, text, sizeof(text));
    throw_error(ErrorKind::bad_file, "split pattern \"{}\": {}", pattern, reinterpret_cast<const char*>(text));
  }
  // Without JIT support the interpreter does the same work.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
  code_->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code_->context, kMatchLimit);
}

Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

void Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), &pcre2_match_data_free);
  size_t from = 0;
  bool any = false;
  size_t last_end = 0;
  while (from <= text.size()) {
    const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK, data.get(), code_->context);
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) {
      throw_error(ErrorKind::bad_file, "split pattern \"{}\" costs too much on a text of {} bytes (PCRE2 error {})",
                  code_->pattern, text.size(), count);
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Match match{ends[0], ends[1]};
    // An empty match right after the last one would not advance.
    if (match.begin == match.end && any && last_end == match.end) {
      if (from >= text.size()) return;
      from += decode_valid_utf8(text.data() + from).length;
      continue;
    }
    matches.push_back(match);
    any = true;
    last_end = from = match.end;
  }
}

}  // namespace ingot
