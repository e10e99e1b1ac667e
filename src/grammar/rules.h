#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "grammar/budget.h"
#include "grammar/lexer.h"

namespace ingot::grammar {

using RuleId = uint32_t;
using StateId = uint32_t;

// The rules of a grammar. The right side of a rule is an automaton over lexemes and rules, not a list: a repetition is
// an edge back, so a list of any length returns to the states it came from. What leaves a state may be made when the
// state is first met: an object whose keys come in any order has a state for each set of keys seen.
class Rules {
 public:
  struct Edge {
    enum class Kind : uint8_t { lexeme, rule, none };
    Kind kind;
    uint32_t symbol;  // LexemeId or RuleId
    StateId to;
  };

  explicit Rules(Budget& budget) : budget_(budget) {}

  RuleId add_rule();
  StateId start(RuleId rule) const { return starts_[rule]; }
  void set_start(RuleId rule, StateId state) { starts_[rule] = state; }

  StateId add_state(RuleId rule, bool final = false);
  // `leave` adds the edges, and sets the state final, when they are first asked for.
  StateId add_state(RuleId rule, std::function<void(StateId)> leave);
  void set_final(StateId state) { states_[state].final = true; }
  void add_edge(StateId from, Edge edge) {
    budget_.spend(sizeof(Edge));
    states_[from].edges.push_back(edge);
  }
  void add_lexeme(StateId from, LexemeId lexeme, StateId to) { add_edge(from, {Edge::Kind::lexeme, lexeme, to}); }
  void add_call(StateId from, RuleId rule, StateId to) { add_edge(from, {Edge::Kind::rule, rule, to}); }
  void add_skip(StateId from, StateId to) { add_edge(from, {Edge::Kind::none, 0, to}); }

  RuleId rule_of(StateId state) const { return states_[state].rule; }
  bool is_final(StateId state) { return met(state).final; }
  // Valid until the next state is added.
  std::span<const Edge> edges(StateId state) { return met(state).edges; }

  size_t rule_count() const { return starts_.size(); }

 private:
  struct State {
    RuleId rule;
    bool final = false;
    std::vector<Edge> edges = {};
    std::function<void(StateId)> leave = {};
  };
  const State& met(StateId state);

  Budget& budget_;
  std::vector<StateId> starts_;
  std::vector<State> states_;
};

}  // namespace ingot::grammar
