#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ingot/llm.h"

namespace ingot {

class ChatFormat;

struct HoldOptions {
  const nlohmann::ordered_json* tools = nullptr;  // those on offer, as ToolSchemas takes them; null: none
  bool calls_only = false;                        // the answer is calls
  std::string function;                           // one call of this one; empty: of any
  bool parallel_calls = true;                     // otherwise one call
  bool in_reasoning = false;                      // the prompt has opened the model's reasoning
  bool thinking_budget = false;                   // the reasoning has one, so that it must be known where it ends
};

// Makes what the text of an answer must be (`structured`) what the whole answer must be, as the model writes it: its
// reasoning first, then the text or, where tools are on offer, calls. Without such a text it is held to the calls where
// that is asked for, by calls_only or strict functions; where nothing is asked for, nothing is changed.
void hold_answer(const ChatFormat& format, const HoldOptions& options, StructuredOutput& structured);

}  // namespace ingot
