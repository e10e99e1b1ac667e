#include "grammar/frame.h"

#include "grammar/structural_tag.h"

namespace ingot::grammar {

ExprId text_without(Program& program, ExprId any, const std::vector<std::string>& marks) {
  ExprPool& pool = program.pool;
  std::vector<ExprId> contain;
  for (const std::string& mark : marks) contain.push_back(pool.concat({any, program.literal_with_specials(mark), any}));
  return pool.without(any, pool.either(std::move(contain)));
}

void add_reasoning(Program& program, RuleId rule, StateId from, StateId to, const AnswerFrame::Reasoning& reasoning) {
  Rules& rules = program.rules;
  const StateId inside = rules.add_state(rule), thought = rules.add_state(rule), closed = rules.add_state(rule);
  if (reasoning.inside) {
    rules.add_skip(from, inside);
  } else {
    rules.add_skip(from, to);
    program.add_expr(from, program.literal_with_specials(reasoning.open), inside);
  }
  std::vector<std::string> never = reasoning.never;
  never.push_back(reasoning.close);
  program.add_expr(inside, text_without(program, program.text.any_text(), never), thought);
  program.add_expr(thought, program.literal_with_specials(reasoning.close), closed);
  const ExprId space = program.pool.bytes(ByteSet::of('\n'));
  program.add_expr(closed, program.pool.repeat(space, 0, 2), to);
}

RuleId compile_free_text(Program& program, const AnswerFrame& frame) {
  Rules& rules = program.rules;
  const RuleId rule = rules.add_rule();
  const StateId begin = rules.add_state(rule), end = rules.add_state(rule, true);
  rules.set_start(rule, begin);
  std::vector<std::string> never;
  if (frame.reasoning) never.push_back(frame.reasoning->open);
  program.add_expr(begin, text_without(program, ExprPool::kAll, never), end);
  return rule;
}

RuleId compile_frame(Program& program, const Options& options, RuleId text) {
  const AnswerFrame& frame = options.frame;
  if (!frame.reasoning && frame.content_open.empty() && frame.calls.empty()) return text;
  Rules& rules = program.rules;
  const RuleId rule = rules.add_rule();
  const StateId start = rules.add_state(rule), ready = rules.add_state(rule), opened = rules.add_state(rule);
  const StateId end = rules.add_state(rule, true);
  rules.set_start(rule, start);
  if (frame.reasoning)
    add_reasoning(program, rule, start, ready, *frame.reasoning);
  else
    rules.add_skip(start, ready);
  program.add_expr(ready, program.literal_with_specials(frame.content_open), opened);
  rules.add_call(opened, text, end);
  if (frame.calls.empty()) return rule;
  try {
    rules.add_call(ready, compile_structural_tag(program, frame.calls, options), end);
  } catch (const OverBudget&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("the tools: {}", error.what()), error.param());
  }
  return rule;
}

}  // namespace ingot::grammar
