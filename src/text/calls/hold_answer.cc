#include "text/calls/hold_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/calls/call_grammar.h"
#include "text/chat_format.h"

namespace ingot {
namespace {

using TagJson = nlohmann::ordered_json;
using Arguments = CallGrammar::Arguments;
using Kind = StructuredOutput::Kind;

// How arguments are written that are not JSON.
TagJson fields_of(const CallGrammar& grammar) {
  if (grammar.arguments == Arguments::python)
    return {{"key_open", ""}, {"key_close", "="}, {"value_close", ""}, {"separator", ", "}, {"json", true}};
  const Fields& fields = grammar.fields;
  const std::string between(fields.between), line = fields.lines ? "\n" : "";
  TagJson never = TagJson::array({fields.value_close});
  for (const std::string_view end : fields.value_ends)
    if (!end.empty()) never.push_back("\n" + std::string(end));
  return {{"key_open", fields.key_open},
          {"key_close", std::string(fields.key_close) + between + std::string(fields.value_open) + line},
          {"value_close", line + std::string(fields.value_close) + (fields.lines ? "\n" : between)},
          {"never", std::move(never)}};
}

// alone: in free text, with what else is around all calls.
TagJson structure_of(const CallGrammar& grammar, const CallGrammar::Tag& tag, bool alone) {
  TagJson schema = tag.schema == nullptr ? TagJson::object() : *tag.schema;
  if (schema.is_object() && !schema.contains("type")) schema["type"] = "object";
  TagJson structure = {{"begin", (alone ? grammar.open : "") + tag.begin},
                       {"schema", std::move(schema)},
                       {"end", tag.end + (alone ? grammar.close : "")}};
  if (grammar.arguments != Arguments::json) structure["fields"] = fields_of(grammar);
  return structure;
}

// Calls, or free text with calls in it, as a structural tag.
std::string tag_of(const CallGrammar& grammar, const HoldOptions& options, bool in_free_text) {
  TagJson tag = {{"structures", TagJson::array()}};
  for (const CallGrammar::Tag& one : grammar.tags)
    if (options.function.empty() || one.name == options.function)
      tag["structures"].push_back(structure_of(grammar, one, in_free_text));
  if (in_free_text) {
    tag["triggers"] = grammar.triggers;
  } else {
    tag["required"] = true;
    tag["once"] = !options.function.empty() || !options.parallel_calls;
    tag["open"] = grammar.open;
    tag["separator"] = grammar.separator;
    tag["close"] = grammar.close;
  }
  return tag.dump();
}

// Where a tag that came with the request says itself what the reasoning is.
bool has_reasoning(const StructuredOutput& structured) {
  if (structured.kind != Kind::structural_tag) return false;
  const TagJson tag = TagJson::parse(structured.text, nullptr, false);
  return tag.is_object() && tag.contains("reasoning");
}

}  // namespace

void hold_answer(const ChatFormat& format, const HoldOptions& options, StructuredOutput& structured) {
  const Dialect& dialect = format.dialect();
  const bool in_messages = !dialect.content_open.empty();  // content and calls are messages of their own
  AnswerFrame frame{.reasoning = {}, .content_open = std::string(dialect.content_open), .calls = {}};
  if (const ReasoningBlock* block = format.reasoning(); block != nullptr && !has_reasoning(structured))
    frame.reasoning = {.open = std::string(block->open),
                       .close = std::string(block->close),
                       .inside = options.in_reasoning,
                       .never = {}};

  if (options.thinking_budget && has_reasoning(structured))
    throw_bad_parameter("thinking_token_budget", "cannot be combined with a structural tag that has its own reasoning");
  const bool limited = options.thinking_budget && frame.reasoning;
  if (options.tools != nullptr && !options.tools->empty()) {
    const CallGrammar grammar = make_call_grammar(dialect, format.chat_template().source(), *options.tools);
    const bool strict =
        std::any_of(grammar.tags.begin(), grammar.tags.end(), [](const auto& tag) { return tag.strict; });
    if (frame.reasoning && dialect.calls_end_reasoning) frame.reasoning->never = grammar.triggers;
    const auto hold_to_calls = [&](Kind kind, std::string text) {
      structured.kind = kind;
      structured.text = std::move(text);
      structured.choices.clear();
      structured.strict = strict;
      structured.param = "tools";
    };
    if (options.calls_only) {
      frame.content_open.clear();
      hold_to_calls(Kind::structural_tag, tag_of(grammar, options, false));
    } else if (structured.kind != Kind::none) {
      frame.calls = tag_of(grammar, options, false);
      structured.strict = structured.strict || strict;
    } else if (in_messages && (strict || limited)) {
      frame.calls = tag_of(grammar, options, false);
      hold_to_calls(Kind::free_text, "");
    } else if (strict) {
      hold_to_calls(Kind::structural_tag, tag_of(grammar, options, true));
    }
  }
  if (structured.kind == Kind::none && limited) {
    structured.kind = Kind::free_text;
    structured.param = "thinking_token_budget";
  }
  if (structured.kind != Kind::none) structured.frame = std::move(frame);
}

}  // namespace ingot
