#pragma once

#include <mutex>

#include "grammar/automaton.h"
#include "grammar/mask.h"
#include "grammar/program.h"

namespace ingot::grammar {

// A program with all that has been met of it. One thread at a time.
struct Machine {
  Machine(const Limits& limits, const Vocabulary& vocabulary, const std::function<uint32_t(Program&)>& build)
      : program(limits, vocabulary),
        earley(program.rules, program.lexer, program.budget, build(program)),
        automaton(earley, program.lexer, program.budget),
        masks(automaton, vocabulary) {}

  std::mutex mutex;
  Program program;
  Earley earley;
  Automaton automaton;
  Masks masks;
};

}  // namespace ingot::grammar
