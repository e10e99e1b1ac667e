#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "grammar/automaton.h"
#include "grammar/mask.h"
#include "grammar/program.h"

namespace ingot::grammar {

// A program with all that has been met of it. One thread at a time.
struct Machine {
  Machine(const Limits& limits, const Vocabulary& vocabulary, const std::function<uint32_t(Program&)>& build,
          const CancelFlag* cancelled)
      : program(limits, vocabulary, cancelled),
        earley(program.rules, program.lexer, program.budget, build(program)),
        automaton(earley, program.lexer, program.budget),
        masks(automaton, vocabulary) {}

  size_t bytes() const { return program.budget.spent() + masks.kept_bytes(); }  // from any thread

  std::mutex mutex;
  std::atomic<bool> retired{false};  // whoever uses it moves to a fresh one
  Program program;
  Earley earley;
  Automaton automaton;
  Masks masks;
};

}  // namespace ingot::grammar
