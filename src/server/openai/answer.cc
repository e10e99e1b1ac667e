#include "server/openai/answer.h"

#include <nlohmann/json.hpp>

#include "server/openai/sse.h"

namespace ingot::server::openai {
namespace {
using Json = nlohmann::ordered_json;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

Json answer_head(const AnswerContext& context, const char* object) {
  return {{"id", context.id},
          {"object", object},
          {"created", context.created},
          {"model", context.model},
          {"system_fingerprint", context.fingerprint}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json finish_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return nullptr;
    case FinishReason::stop:
    case FinishReason::no_token: return "stop";  // stop_reason tells why
    case FinishReason::length:
    case FinishReason::timeout: return "length";  // cut off; likewise
    default: return "abort";
  }
}

Json stop_reason_json(const ChoiceDelta& delta) {
  if (const auto* token = std::get_if<int32_t>(&delta.stop_reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&delta.stop_reason)) return *text;
  if (delta.finish == FinishReason::timeout) return "timeout";
  if (delta.finish == FinishReason::no_token) return "no_allowed_token";
  return nullptr;
}

void append_choice_event(const AnswerContext& context, const Json& head, Json choice, const Usage& usage,
                         std::string& out) {
  Json chunk = head;
  chunk["choices"] = Json::array();
  chunk["choices"].push_back(std::move(choice));
  if (context.output.continuous_usage) {
    chunk["usage"] = usage_json(usage);
  } else if (context.output.include_usage) {
    chunk["usage"] = nullptr;
  }
  append_event(out, dump(chunk));
}

void append_usage_event(const Json& head, const Usage& usage, std::string& out) {
  Json chunk = head;
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(usage);
  append_event(out, dump(chunk));
}

}  // namespace ingot::server::openai
