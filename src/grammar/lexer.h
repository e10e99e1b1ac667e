#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/expr.h"

namespace ingot::grammar {

using LexemeId = uint32_t;
using LexState = uint32_t;

// Sets of lexemes read side by side: an automaton whose states are what is left of each, made as they are met.
class Lexer {
 public:
  static constexpr LexState kDead = 0;

  Lexer(ExprPool& pool, Budget& budget);

  LexemeId add(ExprId expr);  // equal expressions are one lexeme; it must not match the empty text
  LexState start(std::span<const LexemeId> lexemes);  // sorted, each once

  struct Step {
    ByteSet bytes;  // all that lead there
    LexState next;
  };
  Step step(LexState state, uint8_t byte);
  // Number of the set of lexemes that may end in the state; 0: none.
  uint32_t ending(LexState state) const { return states_[state].ending; }
  bool is_done(LexState state) const { return states_[state].done; }  // every lexeme has ended, none can go on
  std::span<const LexemeId> lexemes_of(uint32_t ending) const { return endings_[ending]; }

 private:
  struct Part {
    LexemeId lexeme;
    ExprId expr;
    bool operator==(const Part&) const = default;
  };
  struct State {
    std::vector<Part> parts;
    uint32_t ending;
    bool done;
    std::vector<Step> steps;
  };
  LexState intern(std::vector<Part> parts);
  uint32_t intern_ending(const std::vector<Part>& parts);

  ExprPool& pool_;
  Budget& budget_;
  std::vector<ExprId> lexemes_;
  HashIndex lexeme_index_;
  std::vector<State> states_;
  HashIndex state_index_;
  std::vector<std::vector<LexemeId>> endings_;
  HashIndex ending_index_;
};

}  // namespace ingot::grammar
