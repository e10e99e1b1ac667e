// What a grammar makes a model write, the parser of the same dialect reads.
#include "text/calls/call_grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/calls/parser.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}},
  {"name": "refresh", "input_schema": {"type": "object", "properties": {}}}])");

// {"city": "Oslo", "days": 2} as the dialect has it.
std::string write_arguments(const CallGrammar& grammar) {
  const Fields& f = grammar.fields;
  const auto field = [&](const char* key, const char* value) {
    const std::string line = f.lines ? "\n" : "";
    return std::string(f.key_open) + key + std::string(f.key_close) + std::string(f.between) +
           std::string(f.value_open) + line + value + line + std::string(f.value_close) +
           std::string(f.lines ? "\n" : f.between);
  };
  switch (grammar.arguments) {
    case CallGrammar::Arguments::json: return R"({"city": "Oslo", "days": 2})";
    case CallGrammar::Arguments::fields: return field("city", "Oslo") + field("days", "2");
    case CallGrammar::Arguments::python: return "city='Oslo', days=2";
  }
  return {};
}

class CallGrammarTest : public testing::TestWithParam<std::string> {};

TEST_P(CallGrammarTest, WhatIsWrittenIsRead) {
  const Dialect& dialect = find_dialect(GetParam());
  std::vector<std::string> templates{""};
  for (const Form& form : dialect.forms) templates.emplace_back(form.template_mark);
  for (const std::string& source : templates) {
    SCOPED_TRACE(source);
    const CallGrammar grammar = make_call_grammar(dialect, source, kTools);
    ASSERT_EQ(grammar.tags.size(), 2u);
    EXPECT_EQ(grammar.tags[0].name, "get_weather");
    EXPECT_TRUE(grammar.tags[0].strict);
    EXPECT_FALSE(grammar.tags[1].strict);
    EXPECT_EQ(*grammar.tags[0].schema, kTools[0]["function"]["parameters"]);
    EXPECT_EQ(*grammar.tags[1].schema, kTools[1]["input_schema"]);

    const std::string one = grammar.tags[0].begin + write_arguments(grammar) + grammar.tags[0].end;
    const std::string none = grammar.arguments == CallGrammar::Arguments::json ? "{}" : "";
    const std::string two = grammar.tags[1].begin + none + grammar.tags[1].end;
    const std::string between = GetParam() == "harmony" ? "<|call|>" : grammar.separator;
    const std::string text = grammar.open + one + between + two + grammar.close;
    const auto begins = [&](const std::string& trigger) { return text.starts_with(trigger); };
    EXPECT_TRUE(std::any_of(grammar.triggers.begin(), grammar.triggers.end(), begins)) << text;

    const auto parser = make_chat_parser(dialect, {.tools = ToolSchemas(kTools)});
    ParsedChat chat;
    chat.add(parser->feed(text));
    chat.add(parser->finish());
    EXPECT_EQ(chat.content, "") << text;
    EXPECT_EQ(chat_finish_reason(*parser, "stop"), "tool_calls");
    ASSERT_EQ(chat.calls.size(), 2u) << text;
    EXPECT_EQ(chat.calls[0].name, "get_weather");
    EXPECT_EQ(Json::parse(chat.calls[0].arguments), Json::parse(R"({"city": "Oslo", "days": 2})")) << text;
    EXPECT_EQ(chat.calls[1].name, "refresh");
    EXPECT_EQ(chat.calls[1].arguments, "{}");
  }
}

INSTANTIATE_TEST_SUITE_P(All, CallGrammarTest, testing::ValuesIn(dialect_names()),
                         [](const auto& info) { return info.param; });

TEST(CallGrammar, MistralsTemplateTellsTheForm) {
  const Dialect& mistral = find_dialect("mistral");
  EXPECT_EQ(make_call_grammar(mistral, "[TOOL_CALLS] [ARGS]", kTools).tags[1].begin, "[TOOL_CALLS]refresh[ARGS]");
  const CallGrammar old = make_call_grammar(mistral, "[TOOL_CALLS]", kTools);
  EXPECT_EQ(old.open + old.tags[1].begin, "[TOOL_CALLS] [{\"name\": \"refresh\", \"arguments\": ");
  EXPECT_EQ(old.tags[1].end + old.close, "}]");
}

}  // namespace
}  // namespace ingot
