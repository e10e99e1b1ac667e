#include "grammar/rules.h"

#include <utility>

namespace ingot::grammar {

RuleId Rules::add_rule() {
  budget_.spend(sizeof(StateId));
  starts_.push_back(0);
  return static_cast<RuleId>(starts_.size() - 1);
}

StateId Rules::add_state(RuleId rule, bool final) {
  budget_.spend(sizeof(State));
  states_.push_back({rule, final});
  return static_cast<StateId>(states_.size() - 1);
}

StateId Rules::add_state(RuleId rule, std::function<void(StateId)> leave) {
  const StateId state = add_state(rule);
  budget_.spend(200);  // what it holds
  states_[state].leave = std::move(leave);
  return state;
}

const Rules::State& Rules::met(StateId state) {
  if (states_[state].leave) std::exchange(states_[state].leave, nullptr)(state);
  return states_[state];
}

}  // namespace ingot::grammar
