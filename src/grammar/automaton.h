#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/earley.h"
#include "grammar/lexer.h"

namespace ingot::grammar {

// Everything that is known at a place of the text: lexemes under way, each from the row in which it began. Kept once
// for all places that know the same.
struct Configuration {
  struct Thread {
    RowId row;
    LexState lexer;
    auto operator<=>(const Thread&) const = default;
  };
  std::array<Configuration*, 256> next{};  // nullptr: not met yet
  std::vector<Thread> threads;             // sorted
  bool complete = false;                   // the text may end here
  uint32_t number = 0;
  // What masks have found out; -1: not looked yet.
  int8_t is_free = -1;  // every plain character of a JSON string leads back here
  int free_run = -1;    // so many of them may follow, whatever they are
};

// The grammar as one automaton over bytes, made as it is walked. It decides exactly: a lexeme ends wherever it may, not
// where it is longest.
class Automaton {
 public:
  Automaton(Earley& earley, Lexer& lexer, Budget& budget);

  Configuration* first() const { return first_; }
  Configuration* dead() const { return dead_; }
  Configuration* step(Configuration* from, uint8_t byte) {
    Configuration* to = from->next[byte];
    return to != nullptr ? to : step_fresh(from, byte);
  }
  size_t size() const { return all_.size(); }

 private:
  Configuration* step_fresh(Configuration* from, uint8_t byte);
  Configuration* intern(std::vector<Configuration::Thread> threads, bool complete);

  Earley& earley_;
  Lexer& lexer_;
  Budget& budget_;
  std::vector<std::unique_ptr<Configuration>> all_;
  HashIndex index_;
  Configuration* dead_;
  Configuration* first_;
};

}  // namespace ingot::grammar
