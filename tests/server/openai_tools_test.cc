// Tools and reasoning of the chat endpoint, with a model that says what the test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "get_time"}}])");

// ChatML as Qwen3 has it, in short; it shows what it was given.
constexpr const char* kToolTemplate =
    "{% if tools %}<tools>{{ tools|length }}</tools>{% endif %}{% if reasoning_effort %}({{ reasoning_effort }}){% "
    "endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name "
    "}}"
    "{{ c.function.arguments.city }}</tool_call>{% endfor %};{% endfor %}"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}";

Json body_of(Json more = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"tools", kTools}};
  body.update(more);
  return body;
}

struct ToolRig : Rig {
  explicit ToolRig(std::string source = kToolTemplate, std::string format = "")
      : Rig({.chat_template = std::move(source), .tool_format = std::move(format)}) {
    generator->limits_now.max_model_len = 4096;
  }

  // What the model answers, whole.
  Json answer(const Json& body, const std::string& text, FinishReason finish = FinishReason::stop) {
    generator->on_submit = [&](ScriptedGeneration& generation) {
      generation.push_text(text);
      generation.finish(finish);
    };
    const HttpReply reply = post(kChat, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body).at("choices").at(0);
  }

  // The deltas of a stream, the model's text coming in pieces.
  std::vector<Json> stream(Json body, const std::string& text, size_t piece, FinishReason finish = FinishReason::stop) {
    generator->on_submit = nullptr;
    body["stream"] = true;
    const auto exchange = send("POST", kChat, body.dump());
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      generator->last()->push_text(text.substr(at, piece));
      exchange->pull(out);
    }
    generator->last()->finish(finish);
    out += exchange->wait().body;
    std::vector<Json> choices;
    for (const Json& event : parse_events(out))
      if (event.is_object()) choices.push_back(event["choices"][0]);
    return choices;
  }

  std::string prompt() const { return generator->tokenizer()->decode(generator->last()->request.prompt, false); }
};

const std::string kCall = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
const std::string kCalls =
    "Let me see.\n" + kCall + "\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";

TEST(OpenaiTools, WholeAnswerWithCalls) {
  ToolRig rig;
  const Json choice = rig.answer(body_of(), kCalls);
  EXPECT_EQ(rig.prompt(), "<tools>2</tools>user:hello;");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& message = choice["message"];
  EXPECT_EQ(message["content"], "Let me see.\n");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"],
            Json({{"name", "get_weather"}, {"arguments", "{\"city\": \"Oslo\"}"}}));
  EXPECT_EQ(message["tool_calls"][1]["function"], Json({{"name", "get_time"}, {"arguments", "{}"}}));
  EXPECT_THAT(message["tool_calls"][0]["id"].get<std::string>(), StartsWith("call_"));
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);

  const Json only = rig.answer(body_of(), kCall);
  EXPECT_TRUE(only["message"]["content"].is_null());
  const Json none = rig.answer(body_of(), "Hello.");
  EXPECT_EQ(none["message"]["content"], "Hello.");
  EXPECT_FALSE(none["message"].contains("tool_calls"));
  EXPECT_EQ(none["finish_reason"], "stop");
}

TEST(OpenaiTools, StreamedCalls) {
  ToolRig rig;
  for (const size_t piece : {1, 3, 1000}) {
    std::string content, ids[2], names[2], arguments[2];
    std::vector<std::string> finish;
    for (const Json& choice : rig.stream(body_of(), kCalls, piece)) {
      const Json& delta = choice["delta"];
      if (delta.contains("content")) content += delta["content"].get<std::string>();
      if (!choice["finish_reason"].is_null()) finish.push_back(choice["finish_reason"]);
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        const size_t index = call["index"];
        ASSERT_LT(index, 2u);
        if (call.contains("id")) {  // the first delta of a call has the id, the type and the name
          EXPECT_EQ(ids[index], "");
          EXPECT_EQ(call["type"], "function");
          ids[index] = call["id"];
          names[index] = call["function"]["name"];
          EXPECT_EQ(call["function"]["arguments"], "");
        }
        EXPECT_NE(ids[index], "");
        arguments[index] += call["function"]["arguments"].get<std::string>();
      }
    }
    EXPECT_EQ(content, "Let me see.\n");
    EXPECT_EQ(names[0], "get_weather");
    EXPECT_EQ(names[1], "get_time");
    EXPECT_EQ(arguments[0], "{\"city\": \"Oslo\"}");
    EXPECT_EQ(arguments[1], "{}");
    EXPECT_NE(ids[0], ids[1]);
    EXPECT_EQ(finish, std::vector<std::string>{"tool_calls"});
  }
}

TEST(OpenaiTools, ACutCallSaysSo) {
  ToolRig rig;
  const std::string cut = kCall.substr(0, kCall.find("slo"));
  for (const FinishReason finish : {FinishReason::length, FinishReason::stop}) {
    const Json choice = rig.answer(body_of(), cut, finish);
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"O");
    EXPECT_EQ(rig.stream(body_of(), cut, 2, finish).back()["finish_reason"], "length");
  }
  EXPECT_EQ(rig.answer(body_of(), kCall, FinishReason::length)["finish_reason"], "length");
}

TEST(OpenaiTools, ChoiceNoneOffersNothing) {
  ToolRig rig;
  const Json choice = rig.answer(body_of({{"tool_choice", "none"}}), kCall);
  EXPECT_EQ(rig.prompt(), "user:hello;");
  EXPECT_EQ(choice["message"]["content"], kCall);
  EXPECT_EQ(choice["finish_reason"], "stop");
  const Json automatic = rig.answer(body_of({{"tool_choice", "auto"}}), kCall);
  EXPECT_EQ(automatic["finish_reason"], "tool_calls");
}

TEST(OpenaiTools, OneCallAtATime) {
  ToolRig rig;
  const Json body = body_of({{"parallel_tool_calls", false}});
  const Json choice = rig.answer(body, kCalls);
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  for (const Json& one : rig.stream(body, kCalls, 5))
    for (const Json& call : one["delta"].value("tool_calls", Json::array())) EXPECT_EQ(call["index"], 0);
}

TEST(OpenaiTools, Reasoning) {
  ToolRig rig;
  const std::string text = "<think>\nTwo and two.\n</think>\n\nFour.";
  const Json body = {{"messages", {{{"role", "user"}, {"content", "2+2"}}}}};
  const Json message = rig.answer(body, text)["message"];
  EXPECT_EQ(message["content"], "Four.");
  EXPECT_EQ(message["reasoning_content"], "Two and two.");
  EXPECT_EQ(message["reasoning"], "Two and two.");
  std::string content, reasoning;
  for (const Json& choice : rig.stream(body, text, 4)) {
    EXPECT_EQ(choice["delta"].value("reasoning", ""), choice["delta"].value("reasoning_content", ""));
    reasoning += choice["delta"].value("reasoning", "");
    content += choice["delta"].value("content", "");
  }
  EXPECT_EQ(reasoning, "Two and two.");
  EXPECT_EQ(content, "Four.");

  Json quiet = body;
  quiet["include_reasoning"] = false;
  const Json without = rig.answer(quiet, text)["message"];
  EXPECT_EQ(without["content"], "Four.");
  EXPECT_FALSE(without.contains("reasoning"));
  for (const Json& choice : rig.stream(quiet, text, 4)) EXPECT_FALSE(choice["delta"].contains("reasoning"));

  const Json thought = rig.answer(body_of(), "<think>Look.</think>" + kCall);
  EXPECT_EQ(thought["message"]["reasoning"], "Look.");
  EXPECT_EQ(thought["message"]["tool_calls"].size(), 1u);
  EXPECT_TRUE(thought["message"]["content"].is_null());
}

TEST(OpenaiTools, ThePromptOpensTheReasoning) {
  ToolRig rig("{{ messages[0].content }}<think>\n{# </think> #}");
  const Json body = {{"messages", {{{"role", "user"}, {"content", "2+2"}}}}};
  const Json message = rig.answer(body, "Two and two.\n</think>\n\nFour.")["message"];
  EXPECT_EQ(message["reasoning"], "Two and two.");
  EXPECT_EQ(message["content"], "Four.");
}

TEST(OpenaiTools, EffortAndThinkingReachTheTemplate) {
  ToolRig rig;
  const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
  const auto prompt = [&](Json more) {
    Json asked = body;
    asked.update(more);
    rig.answer(asked, "y");
    return rig.prompt();
  };
  EXPECT_EQ(prompt({{"reasoning_effort", "high"}}), "(high)user:x;");
  EXPECT_EQ(prompt({{"reasoning_effort", "none"}}), "(none)user:x;<think></think>");
  EXPECT_EQ(prompt({{"chat_template_kwargs", {{"enable_thinking", false}}}}), "user:x;<think></think>");
  EXPECT_EQ(prompt({{"reasoning_effort", "low"}, {"chat_template_kwargs", {{"reasoning_effort", "mine"}}}}),
            "(mine)user:x;");
}

TEST(OpenaiTools, CallsAndResultsComeBack) {
  ToolRig rig;
  Json body = body_of();
  body["messages"] = Json::parse(R"([
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
      "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sleet"}])");
  rig.answer(body, "Bad.");
  EXPECT_EQ(rig.prompt(), "<tools>2</tools>user:hello;assistant:<tool_call>get_weatherOslo</tool_call>;tool:sleet;");
}

TEST(OpenaiTools, ATemplateWithoutToolsIsToldOfThem) {
  ToolRig rig("");  // the rig's own template
  const Json choice = rig.answer(body_of(), "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}");
  EXPECT_THAT(rig.prompt(), HasSubstr("You can call functions."));
  EXPECT_THAT(rig.prompt(), HasSubstr("get_time"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json data = rig.answer(body_of(), "{\"name\": \"Ada\", \"arguments\": {\"a\": 1}}");
  EXPECT_EQ(data["message"]["content"], "{\"name\": \"Ada\", \"arguments\": {\"a\": 1}}") << "not one of the tools";
}

TEST(OpenaiTools, TheFormatCanBeSet) {
  ToolRig rig(kToolTemplate, "mistral");
  const Json choice = rig.answer(body_of(), "[TOOL_CALLS]get_time[ARGS]{}");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["id"].get<std::string>().size(), 9u) << "as its templates insist";
}

// What the model is held to, as the generator was asked for it.
struct HoldingRig : ToolRig {
  using ToolRig::ToolRig;
  const StructuredOutput& structured(const Json& body) {
    answer(body, kCall);
    return generator->last()->request.structured;
  }
  Json held(const Json& body) {
    const StructuredOutput& what = structured(body);
    if (what.kind == StructuredOutput::Kind::none) return nullptr;
    EXPECT_EQ(what.kind, StructuredOutput::Kind::structural_tag);
    return Json::parse(what.text);
  }
};

const Json kFormat = {{"type", "json_object"}};
Json question(Json more) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "2+2"}}}}};
  body.update(more);
  return body;
}

TEST(OpenaiTools, ChoicesThatAreHeldTo) {
  HoldingRig rig;
  EXPECT_TRUE(rig.held(body_of()).is_null());
  EXPECT_TRUE(rig.held(body_of({{"tool_choice", "none"}})).is_null());
  const Json required = rig.held(body_of({{"tool_choice", "required"}}));
  EXPECT_EQ(required["required"], true);
  EXPECT_EQ(required["once"], false);
  const AnswerFrame& frame = rig.generator->last()->request.structured.frame;
  ASSERT_TRUE(frame.reasoning);
  EXPECT_EQ(frame.reasoning->open, "<think>");
  EXPECT_EQ(frame.reasoning->close, "</think>");
  EXPECT_FALSE(frame.reasoning->inside);
  EXPECT_EQ(frame.reasoning->never, std::vector<std::string>{"<tool_call>"}) << "it would be a call";
  ASSERT_EQ(required["structures"].size(), 2u);
  EXPECT_EQ(required["structures"][0]["begin"], "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ");
  EXPECT_EQ(required["structures"][0]["end"], "}\n</tool_call>");
  EXPECT_EQ(required["structures"][0]["schema"], kTools[0]["function"]["parameters"]);
  EXPECT_EQ(required["structures"][1]["schema"], Json({{"type", "object"}}));
  EXPECT_EQ(rig.held(body_of({{"tool_choice", "required"}, {"parallel_tool_calls", false}}))["once"], true);

  const Json named = rig.held(body_of({{"tool_choice", {{"type", "function"}, {"function", {{"name", "get_time"}}}}}}));
  ASSERT_EQ(named["structures"].size(), 1u);
  EXPECT_EQ(named["once"], true);
  EXPECT_THAT(named["structures"][0]["begin"].get<std::string>(), HasSubstr("get_time"));

  Json strict = body_of();
  strict["tools"][0]["function"]["strict"] = true;
  const Json free = rig.held(strict);
  EXPECT_FALSE(free.contains("required"));
  EXPECT_EQ(free["triggers"], Json::array({"<tool_call>"}));
  EXPECT_TRUE(rig.generator->last()->request.structured.strict);
  EXPECT_TRUE(rig.generator->last()->request.structured.frame.reasoning);
}

TEST(OpenaiTools, AFormatBeginsBehindTheReasoning) {
  HoldingRig rig;
  const StructuredOutput& optional = rig.structured(question({{"response_format", kFormat}}));
  EXPECT_EQ(optional.kind, StructuredOutput::Kind::json_object);
  ASSERT_TRUE(optional.frame.reasoning);
  EXPECT_FALSE(optional.frame.reasoning->inside);
  EXPECT_TRUE(optional.frame.reasoning->never.empty()) << "no tools, no calls";

  HoldingRig opened("{{ messages[0].content }}<think>\n{# </think> #}");
  const StructuredOutput& inside = opened.structured(question({{"guided_regex", "[0-9]"}}));
  EXPECT_EQ(inside.kind, StructuredOutput::Kind::regex);
  ASSERT_TRUE(inside.frame.reasoning);
  EXPECT_TRUE(inside.frame.reasoning->inside);

  HoldingRig plain("");  // its template knows no reasoning
  EXPECT_FALSE(plain.structured(question({{"response_format", kFormat}})).frame.reasoning);

  HoldingRig magistral("{{ messages[0].content }}{# [TOOL_CALLS] <think> #}");
  EXPECT_EQ(magistral.structured(question({{"response_format", kFormat}})).frame.reasoning->close, "</think>");

  const Json own = {{"required", true}, {"structures", Json::array()}, {"reasoning", {{"close", "x"}}}};
  EXPECT_FALSE(rig.structured(question({{"structural_tag", own}})).frame.reasoning) << "the tag has one itself";
}

TEST(OpenaiTools, ToolsAndAFormat) {
  HoldingRig rig;
  const StructuredOutput& either = rig.structured(body_of({{"response_format", kFormat}}));
  EXPECT_EQ(either.kind, StructuredOutput::Kind::json_object);
  EXPECT_EQ(either.param, "response_format");
  EXPECT_EQ(Json::parse(either.frame.calls)["structures"].size(), 2u);
  EXPECT_EQ(Json::parse(either.frame.calls)["required"], true);
  const Json calls = rig.held(body_of({{"response_format", kFormat}, {"tool_choice", "required"}}));
  EXPECT_EQ(calls["structures"].size(), 2u) << "there is no text whose format it could be";
  const StructuredOutput& text = rig.structured(body_of({{"response_format", kFormat}, {"tool_choice", "none"}}));
  EXPECT_EQ(text.kind, StructuredOutput::Kind::json_object);
  EXPECT_EQ(text.frame.calls, "");
}

TEST(OpenaiTools, HarmonySaysWhatIsContent) {
  HoldingRig rig(kToolTemplate, "harmony");
  const StructuredOutput& format = rig.structured(question({{"response_format", kFormat}}));
  EXPECT_EQ(format.frame.content_open, "<|channel|>final<|message|>");
  EXPECT_EQ(format.frame.reasoning->open, "<|channel|>analysis<|message|>");
  EXPECT_EQ(rig.structured(body_of({{"tool_choice", "required"}})).frame.content_open, "");
  Json strict = body_of();
  strict["tools"][0]["function"]["strict"] = true;
  for (const Json& body : {strict, body_of({{"thinking_token_budget", 5}})}) {
    const StructuredOutput& either = rig.structured(body);
    EXPECT_EQ(either.kind, StructuredOutput::Kind::free_text);
    EXPECT_EQ(Json::parse(either.frame.calls)["structures"].size(), 2u);
  }
}

TEST(OpenaiTools, ThinkingBudgetUnderEveryName) {
  HoldingRig rig;
  const auto budget = [&](Json more) {
    rig.answer(question(std::move(more)), "4");
    return rig.generator->last()->request.thinking_budget;
  };
  EXPECT_EQ(budget(Json::object()), -1);
  EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::none);
  for (const char* name : {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens"}) {
    EXPECT_EQ(budget({{name, 12}}), 12) << name;
    EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::free_text);
    EXPECT_TRUE(rig.generator->last()->request.structured.frame.reasoning);
    EXPECT_EQ(budget({{name, 0}}), 0);
    EXPECT_EQ(budget({{name, -1}}), -1) << "any number";
    EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::none);
  }
  EXPECT_EQ(budget({{"chat_template_kwargs", {{"thinking_budget", 7}}}}), 7);
  EXPECT_EQ(budget({{"response_format", kFormat}, {"thinking_token_budget", 3}}), 3);
  EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::json_object);

  HoldingRig plain("");
  EXPECT_EQ(plain.structured(question({{"thinking_token_budget", 3}})).kind, StructuredOutput::Kind::none)
      << "a model that does not reason keeps within any budget";
  const HttpReply own =
      rig.post(kChat, question({{"thinking_token_budget", 3},
                                {"structural_tag", {{"structures", Json::array()}, {"reasoning", {{"close", "x"}}}}}}));
  EXPECT_EQ(own.status, 400) << own.body;
  EXPECT_THAT(own.body, HasSubstr("thinking_token_budget"));
}

TEST(OpenaiTools, LogprobsAndTokensComeWithTheFirstPart) {
  ToolRig rig;
  const std::vector<Json> choices = rig.stream(body_of({{"logprobs", true}, {"return_token_ids", true}}), kCalls, 7);
  size_t scores = 0, tokens = 0;
  for (const Json& choice : choices) {
    if (!choice["logprobs"].is_null()) scores += choice["logprobs"]["content"].size();
    tokens += choice.value("token_ids", Json::array()).size();
  }
  EXPECT_EQ(scores, kCalls.size());
  EXPECT_EQ(tokens, kCalls.size());
}

TEST(OpenaiTools, SeveralChoices) {
  ToolRig rig;
  rig.generator->on_submit = [&](ScriptedGeneration& generation) {
    generation.push_text(kCall, 0);
    generation.push_text("Hello.", 1);
    generation.finish();
  };
  const Json answer = Json::parse(rig.post(kChat, body_of({{"n", 2}})).body);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][1]["message"]["content"], "Hello.");
}

}  // namespace
}  // namespace ingot::server::testing
