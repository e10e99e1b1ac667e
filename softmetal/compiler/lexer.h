// Splits preprocessed Metal source into tokens, keeping every character, so that joining them gives the source back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace softmetal {

enum class TokenKind {
  space,      // blanks and comments
  newline,    // one line end
  directive,  // a whole line that begins with #, without its end
  word,       // identifier or keyword
  number,
  text,        // string or character literal
  punctuation  // one operator; "[[" is one token, "]]" is two
};

struct Token {
  TokenKind kind;
  std::string text;
};

std::vector<Token> tokenize(std::string_view source);

}  // namespace softmetal
