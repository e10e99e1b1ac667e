#include "server/openai/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/sse.h"

namespace ingot::server::openai {
namespace {
using Json = nlohmann::ordered_json;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

void AnswerWriter::stream_end(std::string& out) { append_done(out); }

AnswerSize estimate_answer(const AnswerContext& context, const GenerationRequest& generation, bool chat,
                           std::span<const int64_t> new_tokens) {
  // Of usual tokens, in bytes. A name in every spelling of a token, a number, the punctuation around them.
  constexpr uint64_t kId = 8, kText = 6, kNamed = 40, kDescribed = 80;
  const OutputOptions& output = context.output;
  const auto top = [](int32_t alternatives) { return static_cast<uint64_t>(std::max(0, alternatives)) + 1; };
  const uint64_t score = output.logprobs ? top(output.top_logprobs) * (chat ? kDescribed : kNamed) : 0;
  const auto n = static_cast<uint64_t>(generation.n);
  uint64_t fresh = 0, echoed = 0, scored = 0;
  for (size_t i = 0; i < context.prompts.size(); ++i) {
    const uint64_t prompt = context.prompts[i].ids.size();
    fresh += n * static_cast<uint64_t>(new_tokens[i]) * (kText + score + (output.token_ids ? kId : 0));
    if (output.echo) echoed += n * (context.prompts[i].text.size() + (chat ? 0 : prompt * score));
    if (output.token_ids) echoed += n * prompt * kId;
    if (output.prompt_logprobs) scored += prompt * top(generation.prompt_logprobs) * kDescribed;
  }
  if (output.stream) fresh = 0;
  AnswerSize size{.bytes = fresh + echoed + scored, .fixed = echoed + scored};
  if (scored > fresh && scored > echoed)
    size.param = "prompt_logprobs";
  else if (echoed > fresh)
    size.param = output.echo ? "echo" : "return_token_ids";
  else if (output.logprobs)
    size.param = chat ? "top_logprobs" : "logprobs";
  return size;
}

std::string whole_answer(const Json& head, const std::vector<std::string>& choices, const Json& tail) {
  std::string body = dump(head), end = dump(tail);
  body.back() = ',';
  body += R"("choices":[)";
  for (const std::string& choice : choices) {
    if (&choice != &choices.front()) body += ',';
    body += choice;
  }
  body += ']';
  end.front() = ',';
  return body + end;
}

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
