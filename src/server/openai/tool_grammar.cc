#include "server/openai/tool_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/errors.h"
#include "text/calls/call_grammar.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = CallGrammar::Arguments;

// How arguments are written that are not JSON.
Json fields_of(const CallGrammar& grammar) {
  if (grammar.arguments == Arguments::python)
    return {{"key_open", ""}, {"key_close", "="}, {"value_close", ""}, {"separator", ", "}, {"json", true}};
  const ingot::Fields& fields = grammar.fields;
  const std::string between(fields.between), line = fields.lines ? "\n" : "";
  Json never = Json::array({fields.value_close});
  for (const std::string_view end : fields.value_ends)
    if (!end.empty()) never.push_back("\n" + std::string(end));
  return {{"key_open", fields.key_open},
          {"key_close", std::string(fields.key_close) + between + std::string(fields.value_open) + line},
          {"value_close", line + std::string(fields.value_close) + (fields.lines ? "\n" : between)},
          {"never", std::move(never)}};
}

// alone: in free text, with what else is around all calls.
Json structure_of(const CallGrammar& grammar, const CallGrammar::Tag& tag, bool alone) {
  Json schema = tag.schema == nullptr ? Json::object() : *tag.schema;
  if (schema.is_object() && !schema.contains("type")) schema["type"] = "object";
  Json structure = {{"begin", (alone ? grammar.open : "") + tag.begin},
                    {"schema", std::move(schema)},
                    {"end", tag.end + (alone ? grammar.close : "")}};
  if (grammar.arguments != Arguments::json) structure["fields"] = fields_of(grammar);
  return structure;
}

}  // namespace

void hold_to_tools(const ChatFormat& format, const ChatInput& chat, bool in_reasoning, StructuredOutput& structured) {
  using Kind = ToolChoice::Kind;
  if (!chat.tools || chat.tool_choice.kind == Kind::none) return;
  const Dialect& dialect = format.dialect();
  const CallGrammar grammar = make_call_grammar(dialect, format.chat_template().source(), *chat.tools);
  const bool strict = std::any_of(grammar.tags.begin(), grammar.tags.end(), [](const auto& tag) { return tag.strict; });
  const bool required = chat.tool_choice.kind != Kind::automatic;
  if (structured.kind != StructuredOutput::Kind::none)
    fail(structured.param, "unsupported_parameter",
         "cannot be had together with tools: leave one of them out, or set tool_choice to none");
  if (!required && !strict) return;
  if (!required && dialect.make_parser != nullptr)
    fail("tools", "unsupported_parameter",
         "cannot be strict with this model unless tool_choice is required or names one: leave strict out");

  Json tag = {{"structures", Json::array()}, {"triggers", grammar.triggers}};
  for (const CallGrammar::Tag& one : grammar.tags)
    if (chat.tool_choice.kind != Kind::named || one.name == chat.tool_choice.name)
      tag["structures"].push_back(structure_of(grammar, one, !required));
  if (required) {
    tag["required"] = true;
    tag["once"] = chat.tool_choice.kind == Kind::named || !chat.parallel_tool_calls;
    tag["open"] = grammar.open;
    tag["separator"] = grammar.separator;
    tag["close"] = grammar.close;
    const ReasoningBlock& block = dialect.reasoning.front();
    if (format.reasons()) tag["reasoning"] = {{"open", block.open}, {"close", block.close}, {"inside", in_reasoning}};
  }
  structured = {.kind = StructuredOutput::Kind::structural_tag, .text = tag.dump(), .strict = strict, .param = "tools"};
}

}  // namespace ingot::server::openai
