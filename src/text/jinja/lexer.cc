#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "text/jinja/limits.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// Of a name; what is not ASCII counts as a letter.
bool is_name_char(char c) {
  return c == '_' || is_digit_char(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) read_data();
    add(TokenType::eof, pos_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t pos, std::string_view message) const {
    syntax_error(source_, static_cast<uint32_t>(pos), message);
  }

  Token& add(TokenType type, size_t pos) {
    tokens_.push_back(Token{type, static_cast<uint32_t>(pos), ""});
    return tokens_.back();
  }

  bool at(std::string_view text) const { return std::string_view(source_).substr(pos_, text.size()) == text; }

  void skip_space() { pos_ = source_.size() - strip_left(std::string_view(source_).substr(pos_)).size(); }

  void set_line_starting() { line_starting_ = pos_ > 0 && source_[pos_ - 1] == '\n'; }

  // Text up to the next tag, and that tag.
  void read_data() {
    const size_t start = pos_;
    size_t tag = start;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 == source_.size()) {
        add(TokenType::data, start).text = source_.substr(start);
        pos_ = source_.size();
        return;
      }
      const char c = source_[tag + 1];
      if (c == '%' || c == '{' || c == '#') break;
    }
    const char kind = source_[tag + 1];
    pos_ = tag + 2;
    const char sign = at("-") || at("+") ? source_[pos_++] : '\0';
    std::string_view data = std::string_view(source_).substr(start, tag - start);
    data = trim_before(data, sign, kind == '{');
    if (!data.empty()) add(TokenType::data, start).text = std::string(data);
    if (kind == '#') {
      read_comment(tag);
    } else if (kind == '{') {
      add(TokenType::variable_begin, tag);
      set_line_starting();
      read_expression(tag, false);
    } else if (!read_raw(tag)) {
      add(TokenType::block_begin, tag);
      read_expression(tag, true);
    }
    set_line_starting();
  }

  std::string_view trim_before(std::string_view data, char sign, bool variable) const {
    if (sign == '-') return strip_right(data);
    if (sign == '+' || variable) return data;
    // lstrip_blocks: a tag that is the first thing in its line takes the whitespace before it away.
    const size_t newline = data.rfind('\n');
    if (newline == data.npos && !line_starting_) return data;
    const size_t line = newline == data.npos ? 0 : newline + 1;
    return strip_left(data.substr(line)).empty() ? data.substr(0, line) : data;
  }

  // Behind `%}` or `#}`: trim_blocks takes one newline away, `-` all whitespace, `+` nothing.
  void close(char sign) {
    pos_ += sign == '\0' ? 2 : 3;
    if (sign == '-') {
      skip_space();
    } else if (sign == '\0' && at("\n")) {
      ++pos_;
    }
  }

  void read_comment(size_t tag) {
    size_t end = source_.find("#}", pos_);
    if (end == source_.npos && pos_ == source_.size()) return;  // as in jinja2, nothing is missing then
    if (end == source_.npos) fail(tag, "Missing end of comment tag");
    char sign = '\0';
    if (end > pos_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) sign = source_[--end];
    pos_ = end;
    close(sign);
  }

  // {% raw %} ... {% endraw %}; false when the tag at hand is another one.
  bool read_raw(size_t tag) {
    const size_t before = pos_;
    skip_space();
    if (!at("raw")) {
      pos_ = before;
      return false;
    }
    pos_ += 3;
    skip_space();
    if (at("-%}")) {
      pos_ += 3;
      skip_space();
    } else if (at("%}")) {
      pos_ += 2;
    } else {
      pos_ = before;
      return false;
    }
    set_line_starting();
    const size_t start = pos_;
    for (size_t end = source_.find("{%", start); end != source_.npos; end = source_.find("{%", end + 1)) {
      pos_ = end + 2;
      const char sign = at("-") || at("+") ? source_[pos_++] : '\0';
      skip_space();
      if (!at("endraw")) continue;
      pos_ += 6;
      skip_space();
      const char end_sign = at("-%}") || at("+%}") ? source_[pos_] : '\0';
      if (end_sign == '\0' && !at("%}")) continue;
      const std::string_view data = trim_before(std::string_view(source_).substr(start, end - start), sign, false);
      if (!data.empty()) add(TokenType::data, start).text = std::string(data);
      close(end_sign);
      return true;
    }
    pos_ = source_.size();
    if (start == source_.size()) return true;  // as in jinja2, nothing is missing then
    fail(tag, "Missing end of raw directive");
  }

  // The tokens of a tag up to its end.
  void read_expression(size_t tag, bool block) {
    const std::string_view end = block ? "%}" : "}}";
    while (true) {
      skip_space();
      if (pos_ >= source_.size()) return;  // the parser sees the end of the template
      if (open_.empty()) {
        const char sign = at("-") || (block && at("+")) ? source_[pos_] : '\0';
        if (std::string_view(source_).substr(pos_ + (sign != '\0'), 2) == end) {
          add(block ? TokenType::block_end : TokenType::variable_end, pos_);
          if (block) {
            close(sign);
          } else {
            pos_ += sign == '\0' ? 2 : 3;
            if (sign == '-') skip_space();
          }
          return;
        }
      }
      read_token(tag);
    }
  }

  void read_token(size_t tag) {
    const char c = source_[pos_];
    if (is_digit_char(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_string();
    } else if (!read_name()) {
      read_operator(tag);
    }
  }

  bool read_name() {
    size_t end = pos_;
    while (end < source_.size() && is_name_char(source_[end])) ++end;
    if (end == pos_) return false;
    add(TokenType::name, pos_).text = source_.substr(pos_, end - pos_);
    pos_ = end;
    return true;
  }

  // Decimal digits; a float when a point with digits or an exponent follows, except behind a point as in `x.1.2`.
  void read_number() {
    const size_t start = pos_;
    const bool may_be_real = start == 0 || source_[start - 1] != '.';
    const auto digits = [this](size_t from) {
      while (from < source_.size() && is_digit_char(source_[from])) ++from;
      return from;
    };
    const size_t whole = digits(start);
    size_t end = whole;
    if (may_be_real && end < source_.size() && source_[end] == '.' && digits(end + 1) > end + 1) end = digits(end + 1);
    if (may_be_real && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (digits(exponent) > exponent) end = digits(exponent);
    }
    if (end < source_.size() && is_name_char(source_[end]))
      fail(start, "only decimal numbers without underscores are supported");
    Token& token = add(end > whole ? TokenType::real : TokenType::integer, start);
    token.text = source_.substr(start, end - start);
    const char* last = source_.data() + end;
    const auto result = end > whole ? std::from_chars(source_.data() + start, last, token.real)
                                    : std::from_chars(source_.data() + start, last, token.integer);
    if (result.ec == std::errc::result_out_of_range) fail(start, "a number over 63 bits is not supported");
    pos_ = end;
  }

  void read_string() {
    const char mark = source_[pos_];
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != mark) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size())
      fail(pos_, fmt::format("unexpected char {} at {}", quote(source_.substr(pos_, 1)),
                             count_chars(std::string_view(source_).substr(0, pos_))));
    std::string text = unescape(pos_ + 1, end);
    add(TokenType::string, pos_).text = std::move(text);
    pos_ = end + 1;
  }

  // Python's unicode-escape decoding.
  std::string unescape(size_t begin, size_t end) const {
    std::string out;
    for (size_t i = begin; i < end; ++i) {
      if (source_[i] != '\\') {
        out += source_[i];
        continue;
      }
      const char c = source_[++i];
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': append_char(out, hex_escape(i, end, 2, "truncated \\xXX escape")); break;
        case 'u': append_char(out, hex_escape(i, end, 4, "truncated \\uXXXX escape")); break;
        case 'U': append_char(out, hex_escape(i, end, 8, "truncated \\UXXXXXXXX escape")); break;
        default:
          if (c == 'N' || (c >= '0' && c <= '7') || static_cast<unsigned char>(c) >= 0x80)
            fail(i - 1, "this escape is not supported");
          out += '\\';
          out += c;
      }
    }
    return out;
  }

  // Reads `digits` hexadecimal digits behind source_[i] and leaves i at the last one.
  char32_t hex_escape(size_t& i, size_t end, size_t digits, std::string_view message) const {
    uint32_t code = 0;
    const char* first = source_.data() + i + 1;
    if (i + digits >= end || std::from_chars(first, first + digits, code, 16).ptr != first + digits)
      fail(i - 1, message);
    if (code > 0x10ffff) fail(i - 1, "illegal Unicode character");
    if (code >= 0xd800 && code <= 0xdfff) fail(i - 1, "surrogates in \\u escapes are not supported, use \\U");
    i += digits;
    return code;
  }

  void read_operator(size_t tag) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators), [this](auto op) { return at(op); });
    if (found == std::end(kOperators)) {
      size_t next = pos_;
      next_char(source_, next);
      fail(pos_, fmt::format("unexpected char {} at {}", quote(source_.substr(pos_, next - pos_)),
                             count_chars(std::string_view(source_).substr(0, pos_))));
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (open_.size() > static_cast<size_t>(kMaxNesting)) fail(tag, "brackets nest too deep");
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) fail(pos_, fmt::format("unexpected '{}'", c));
      if (open_.back() != c) fail(pos_, fmt::format("unexpected '{}', expected '{}'", c, open_.back()));
      open_.pop_back();
    }
    add(TokenType::op, pos_).text = std::string(*found);
    pos_ += found->size();
  }

  const std::string& source_;
  size_t pos_ = 0;
  bool line_starting_ = true;  // whether the last tag ended a line
  std::string open_;           // the brackets that have to be closed
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  if (source.size() > kMaxSource)
    throw_error(ErrorKind::bad_file, "chat template: {} bytes, more than the {} allowed", source.size(), kMaxSource);
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

std::string describe_position(std::string_view source, uint32_t pos) {
  constexpr size_t kExcerpt = 48;
  const std::string_view before = source.substr(0, pos);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  std::string_view here = source.substr(std::min<size_t>(pos, source.size()));
  here = here.substr(0, std::min({kExcerpt, here.find('\n'), here.size()}));
  // Not in the middle of a character.
  while (!here.empty() && here.size() == kExcerpt && (static_cast<unsigned char>(here.back()) & 0x80) != 0)
    here.remove_suffix(1);
  if (here.empty()) return fmt::format("line {}", line);
  return fmt::format("line {}, at `{}`", line, here);
}

void syntax_error(std::string_view source, uint32_t pos, std::string_view message) {
  throw_error(ErrorKind::bad_file, "chat template, {}: {}", describe_position(source, pos), message);
}

}  // namespace ingot::jinja
