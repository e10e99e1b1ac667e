#include "grammar/rules.h"

#include <utility>

namespace ingot::grammar {

RuleId Rules::add_rule() {
  budget_.check(starts_.size(), budget_.limits().max_states, "rules");
  starts_.push_back(0);
  return static_cast<RuleId>(starts_.size() - 1);
}

StateId Rules::add_state(RuleId rule, bool final) {
  budget_.check(states_.size(), budget_.limits().max_states, "states of its rules");
  states_.push_back({rule, final});
  return static_cast<StateId>(states_.size() - 1);
}

StateId Rules::add_state(RuleId rule, std::function<void(StateId)> leave) {
  const StateId state = add_state(rule);
  states_[state].leave = std::move(leave);
  return state;
}

const Rules::State& Rules::met(StateId state) {
  if (states_[state].leave) std::exchange(states_[state].leave, nullptr)(state);
  return states_[state];
}

}  // namespace ingot::grammar
