#pragma once

#include <memory>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/rules.h"
#include "grammar/vocabulary.h"

namespace ingot::grammar {

// What a source is compiled into: rules over lexemes over expressions.
struct Program {
  Program(const Limits& limits, const Vocabulary& the_vocabulary, const CancelFlag* cancelled)
      : budget(limits, cancelled), vocabulary(the_vocabulary) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Budget budget;
  const Vocabulary& vocabulary;
  ExprPool pool{budget};
  CharEncoder text{pool, Encoding::text};
  CharEncoder json{pool, Encoding::json};
  Lexer lexer{pool, budget};
  Rules rules{budget};
  std::vector<std::shared_ptr<void>> owned;  // what states that are not met yet will need

  // `from` to `to` over the texts of an expression, the empty one included. Nothing is added where none matches.
  void add_expr(StateId from, ExprId expr, StateId to) {
    if (pool.is_nothing(expr)) return;
    if (pool.nullable(expr)) {
      rules.add_skip(from, to);
      expr = pool.without(expr, ExprPool::kEmpty);
      if (pool.is_nothing(expr)) return;
    }
    rules.add_lexeme(from, lexer.add(expr), to);
  }
  // The literal, also where parts of it are special tokens of the model.
  ExprId literal_with_specials(std::string_view text) {
    ExprId expr = ExprPool::kEmpty;
    std::vector<ExprId> parts;
    for (size_t at = 0; at < text.size();) {
      std::string_view rest = text.substr(at);
      std::string_view special;
      for (const std::string& candidate : vocabulary.special_texts())
        if (rest.starts_with(candidate)) {
          special = candidate;
          break;
        }
      const size_t length = special.empty() ? 1 : special.size();
      const ExprId plain = pool.literal(rest.substr(0, length));
      const ExprId mark = pool.bytes(ByteSet::of(kSpecialMark));
      parts.push_back(special.empty() ? plain : pool.either({plain, pool.concat(mark, plain)}));
      at += length;
    }
    for (size_t i = parts.size(); i-- > 0;) expr = pool.concat(parts[i], expr);
    return expr;
  }
};

}  // namespace ingot::grammar
