#include "compiler/lexer.h"

#include <array>
#include <cctype>

namespace softmetal {
namespace {

bool is_word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::array<std::string_view, 22> kOperators = {"<<=", ">>=", "...", "[[", "::", "->", "<<", "&&",
                                                         "||",  "+=",  "-=",  "*=", "/=", "%=", "&=", "|=",
                                                         "^=",  "==",  "!=",  "<=", "++", "--"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next();
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void take(TokenKind kind, size_t end) {
    line_start_ = (kind == TokenKind::newline) || (line_start_ && kind == TokenKind::space);
    tokens_.push_back({kind, std::string(source_.substr(at_, end - at_))});
    at_ = end;
  }

  void next() {
    const char c = peek();
    if (c == '\n') return take(TokenKind::newline, at_ + 1);
    if (std::isspace(static_cast<unsigned char>(c))) {
      size_t end = at_;
      while (end < source_.size() && source_[end] != '\n' && std::isspace(static_cast<unsigned char>(source_[end])))
        ++end;
      return take(TokenKind::space, end);
    }
    if (c == '#' && line_start_) return take(TokenKind::directive, std::min(source_.find('\n', at_), source_.size()));
    if (c == '/' && peek(1) == '/') return take(TokenKind::space, std::min(source_.find('\n', at_), source_.size()));
    if (c == '"' || c == '\'') return take(TokenKind::text, end_of_literal(c));
    if (is_word_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_word(source_[end])) ++end;
      return take(TokenKind::word, end);
    }
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return take(TokenKind::number, end_of_number());
    for (std::string_view op : kOperators) {
      if (source_.substr(at_, op.size()) == op) return take(TokenKind::punctuation, at_ + op.size());
    }
    take(TokenKind::punctuation, at_ + 1);
  }

  size_t end_of_literal(char quote) const {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote && source_[end] != '\n') end += source_[end] == '\\' ? 2 : 1;
    return std::min(end + 1, source_.size());
  }

  // Digits, a point, an exponent with its sign, and the suffix.
  size_t end_of_number() const {
    const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    size_t end = at_;
    while (end < source_.size()) {
      const char c = source_[end];
      const bool exponent = hex ? (c == 'p' || c == 'P') : (c == 'e' || c == 'E');
      if (exponent && end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-')) {
        end += 2;
      } else if (is_word(c) || c == '.' || c == '\'') {
        ++end;
      } else {
        break;
      }
    }
    return end;
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace softmetal
