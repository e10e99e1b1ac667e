#pragma once

#include "server/openai_rig.h"

// The API over a model that reasons and calls tools, for the APIs whose streams have events with names.
namespace ingot::server::testing {

inline constexpr const char* kResponsesPath = "/v1/responses";
inline constexpr const char* kMessagesPath = "/v1/messages";

// ChatML as Qwen3 has it, in short; it shows what it was given.
inline constexpr const char* kAgentTemplate =
    "{% if tools %}<tools>{{ tools|length }}</tools>{% endif %}{% if reasoning_effort %}({{ reasoning_effort }}){% "
    "endif %}{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content "
    "}}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
    "{{ c.function.arguments.city }}</tool_call>{% endfor %}{% if not loop.last or add_generation_prompt %};{% endif "
    "%}{% endfor %}{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}";

inline const std::string kThought = "<think>Look it up.</think>";
inline const std::string kWeatherCall =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
inline const std::string kTimeCall = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";

struct AgentRig : Rig {
  explicit AgentRig(ApiOptions options = {}) : Rig(with_template(std::move(options))) {
    generator->limits_now.max_model_len = 8192;
  }

  HttpReply reply(const char* path, const Json& body, const std::string& text,
                  FinishReason finish = FinishReason::stop) {
    generator->on_submit = [&](ScriptedGeneration& generation) {
      generation.push_text(text);
      generation.finish(finish);
    };
    return post(path, body);
  }
  Json answer(const char* path, const Json& body, const std::string& text, FinishReason finish = FinishReason::stop) {
    const HttpReply reply = this->reply(path, body, text, finish);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  }

  // The events of a stream, the model's text coming in pieces.
  std::vector<Json> stream(const char* path, Json body, const std::string& text, size_t piece = 1000,
                           FinishReason finish = FinishReason::stop) {
    generator->on_submit = nullptr;
    body["stream"] = true;
    const auto exchange = send("POST", path, body.dump());
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      generator->last()->push_text(text.substr(at, piece));
      exchange->pull(out);
    }
    generator->last()->finish(finish);
    while (!exchange->pull(out)) {
    }
    return named_events(out);
  }

  // Each event has a name, which its data repeats as the type.
  static std::vector<Json> named_events(const std::string& body) {
    std::vector<Json> events;
    for (size_t at = 0; at < body.size();) {
      const size_t line = body.find('\n', at), end = body.find("\n\n", at);
      if (end == std::string::npos || body.compare(at, 7, "event: ") != 0 || body.compare(line, 7, "\ndata: ") != 0) {
        ADD_FAILURE() << "not an event: " << body.substr(at);
        break;
      }
      events.push_back(Json::parse(body.substr(line + 7, end - line - 7)));
      EXPECT_EQ(events.back()["type"], body.substr(at + 7, line - at - 7));
      at = end + 2;
    }
    return events;
  }
  static std::vector<std::string> types(const std::vector<Json>& events) {
    std::vector<std::string> types;
    for (const Json& event : events) types.push_back(event["type"]);
    return types;
  }

  // What the model was given last.
  std::string prompt() const { return generator->tokenizer()->decode(generator->last()->request.prompt, false); }

 private:
  static ApiOptions with_template(ApiOptions options) {
    if (options.chat_template.empty()) options.chat_template = kAgentTemplate;
    return options;
  }
};

}  // namespace ingot::server::testing
