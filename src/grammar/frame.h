#pragma once

#include <vector>

#include "grammar/grammar.h"
#include "grammar/program.h"
#include "ingot/answer_frame.h"

namespace ingot::grammar {

// Any text of `any` in which none of the marks is.
ExprId text_without(Program& program, ExprId any, const std::vector<std::string>& marks);

// `from` to `to` over a block of reasoning, and over nothing where the block may be left out.
void add_reasoning(Program& program, RuleId rule, StateId from, StateId to, const AnswerFrame::Reasoning& reasoning);

// Whatever a model may write, special tokens too, but no other block of reasoning.
RuleId compile_free_text(Program& program, const AnswerFrame& frame);

// An answer whose text is `text`, with what the frame has around it.
RuleId compile_frame(Program& program, const Options& options, RuleId text);

}  // namespace ingot::grammar
