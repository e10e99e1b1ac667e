#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string read_template(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

ChatFormat format_of(const std::string& name) {
  return ChatFormat(read_template(std::filesystem::path(INGOT_FIXTURES) / "templates" / name), "<s>", "</s>");
}

const Json kWeather =
    Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}, "strict": true}}])");

Json conversation(bool with_result = true) {
  Json messages = Json::parse(R"([
    {"role": "user", "content": "How is the weather in Oslo?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdef123", "type": "function",
      "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]}])");
  if (with_result) messages.push_back({{"role", "tool"}, {"tool_call_id", "abcdef123"}, {"content", "sleet"}});
  return messages;
}

// A message without content, with calls, and the result of the call: every template has a way to say so.
TEST(ChatFormat, CallsReplayWithEveryTemplate) {
  size_t templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_FIXTURES "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename());
    const ChatFormat format = format_of(entry.path().filename());
    for (const Json* tools : {&kWeather, static_cast<const Json*>(nullptr)}) {
      const std::string text = format.render(conversation(), {.tools = tools}).text;
      EXPECT_NE(text.find("How is the weather in Oslo?"), text.npos) << text;
      EXPECT_NE(text.find("get_weather"), text.npos) << text;
      EXPECT_NE(text.find("sleet"), text.npos) << text;
      EXPECT_EQ(text.find("None"), text.npos) << text;
      EXPECT_EQ(text.find("null"), text.npos) << text;
    }
    ++templates;
  }
  EXPECT_GE(templates, 14u);
}

TEST(ChatFormat, ATemplateWithoutToolsGetsThemInASystemMessage) {
  const ChatFormat format = format_of("smollm2-135m-instruct.jinja");
  EXPECT_EQ(format.dialect().name, "json");
  const std::string text = format.render(conversation(), {.tools = &kWeather}).text;
  const size_t system = text.find("<|im_start|>system\nYou can call functions."), user = text.find("<|im_start|>user");
  ASSERT_NE(system, text.npos) << text;
  EXPECT_LT(system, user);
  EXPECT_NE(text.find(R"({"name":"get_weather","description":"The weather.","parameters")"), text.npos) << text;
  EXPECT_EQ(text.find("strict"), text.npos) << "that is for the server";
  EXPECT_NE(text.find("<|im_start|>assistant\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}<|im_end|>"),
            text.npos)
      << text;
  EXPECT_NE(text.find("Result of get_weather: sleet"), text.npos) << text;

  Json messages = conversation();
  messages.insert(messages.begin(), Json::object({{"role", "system"}, {"content", "Be brief."}}));
  const std::string both = format.render(messages, {.tools = &kWeather}).text;
  EXPECT_NE(both.find("<|im_start|>system\nBe brief.\n\nYou can call functions."), both.npos) << both;
}

TEST(ChatFormat, ATemplateWithoutSystemMessagesGetsThemInTheFirstOfTheUser) {
  const std::string text = format_of("gemma-2-2b-it.jinja").render(conversation(), {.tools = &kWeather}).text;
  EXPECT_NE(text.find("You can call functions."), text.npos) << text;
  EXPECT_LT(text.find("You can call functions."), text.find("How is the weather")) << text;
}

TEST(ChatFormat, ATemplateWithToolsIsLeftToItself) {
  const ChatFormat format = format_of("qwen3-0.6b.jinja");
  const ChatTemplateOptions options{.tools = &kWeather};
  Json messages = conversation();
  messages[1]["content"] = "";
  EXPECT_EQ(format.render(conversation(), options).text, format.chat_template().render(messages, options));
  EXPECT_EQ(format.render(conversation(), options).text.find("You can call functions"), std::string::npos);
}

TEST(ChatFormat, ContentAndArgumentsAreWordedAsTheTemplateTakesThem) {
  // One that tells calls by a content that is none, and writes arguments as they are.
  const ChatFormat none(
      "{% for m in messages %}{% if m.content is none %}[{{ m.tool_calls[0].function.name + "
      "m.tool_calls[0].function.arguments }}]{% else %}({{ m.content }}){% endif %}{% endfor %}",
      "", "");
  EXPECT_EQ(none.render(conversation(false)).text, "(How is the weather in Oslo?)[get_weather{\"city\":\"Oslo\"}]");
  // One that adds contents up.
  const ChatFormat sum(
      "{% for m in messages %}{{ m.role + ':' + m.content }}{{ m.tool_calls|default('')|tojson }};{% endfor %}", "",
      "");
  EXPECT_EQ(sum.render(conversation(false)).text.find("user:How is the weather in Oslo?"), 0u);
  // What a template refuses for another reason, it refuses.
  const ChatFormat strict("{{ raise_exception('no tool_calls here') }}", "", "");
  EXPECT_THROW(strict.render(conversation()), Error);
}

TEST(ChatFormat, ReasoningThatThePromptOpens) {
  const ChatFormat open("{{ messages[0].content }}<|assistant|><think>\n", "", "");
  const Json messages = Json::parse(R"([{"role": "user", "content": "x"}])");
  EXPECT_TRUE(open.reasons());
  EXPECT_TRUE(open.render(messages).in_reasoning);
  const ChatFormat closed("{{ messages[0].content }}<|assistant|><think>\n\n</think>\n\n", "", "");
  EXPECT_TRUE(closed.reasons());
  EXPECT_FALSE(closed.render(messages).in_reasoning);
  EXPECT_FALSE(format_of("smollm2-135m-instruct.jinja").reasons());
  EXPECT_TRUE(format_of("qwen3-0.6b.jinja").reasons());
}

TEST(ChatFormat, AFormatCanBeNamed) {
  EXPECT_EQ(ChatFormat("x", "", "", "kimi_k2").dialect().name, "kimi_k2");
  EXPECT_THROW(ChatFormat("x", "", "", "nothing"), Error);
}

}  // namespace
}  // namespace ingot
