#include "server/openai/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/sse.h"

namespace ingot::server::openai {
namespace {
using Json = nlohmann::ordered_json;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

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
  echoed += output.repeated_bytes;
  if (output.stream) fresh = 0;
  AnswerSize size{.bytes = fresh + echoed + scored, .fixed = echoed + scored};
  if (scored > fresh && scored > echoed)
    size.param = "prompt_logprobs";
  else if (echoed > fresh)
    size.param = output.echo ? "echo" : output.token_ids ? "return_token_ids" : "tools";
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
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", usage.completion_tokens},
               {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.draft_tokens > 0)
    json["completion_tokens_details"] = {{"accepted_prediction_tokens", usage.accepted_tokens},
                                         {"rejected_prediction_tokens", usage.draft_tokens - usage.accepted_tokens}};
  return json;
}

Json finish_json(FinishReason reason) {
  if (reason == FinishReason::none) return nullptr;
  return finish_word(reason);
}

Json stop_reason_json(const ChoiceDelta& delta) {
  if (const auto* token = std::get_if<int32_t>(&delta.stop_reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&delta.stop_reason)) return *text;
  if (delta.finish == FinishReason::timeout) return "timeout";
  if (delta.finish == FinishReason::no_token) return "no_allowed_token";
  return nullptr;
}

ChunkWriter::ChunkWriter(AnswerContext context, const char* chunk_object)
    : context_(std::move(context)), head_(std::make_unique<const Json>(answer_head(context_, chunk_object))) {}
ChunkWriter::~ChunkWriter() = default;

void ChunkWriter::append_choice(Json choice, const Usage& usage, std::string& out) const {
  Json chunk = *head_;
  chunk["choices"] = Json::array();
  chunk["choices"].push_back(std::move(choice));
  if (context_.output.continuous_usage) {
    chunk["usage"] = usage_json(usage);
  } else if (context_.output.include_usage) {
    chunk["usage"] = nullptr;
  }
  append_event(out, dump(chunk));
}

void ChunkWriter::stream_end(const Usage& usage, std::string& out) {
  if (context_.output.include_usage) {
    Json chunk = *head_;
    chunk["choices"] = Json::array();
    chunk["usage"] = usage_json(usage);
    append_event(out, dump(chunk));
  }
  append_done(out);
}

void ChunkWriter::stream_error(const ErrorReply& error, std::string& out) {
  append_event(out, error.json());
  append_done(out);
}

void ChunkWriter::append_progress(Json choice, const PromptProgress& progress, std::string& out) const {
  Json chunk = *head_;
  chunk["choices"] = Json::array();
  chunk["choices"].push_back(std::move(choice));
  if (context_.output.include_usage || context_.output.continuous_usage) chunk["usage"] = nullptr;
  chunk["prompt_progress"] = {{"total", progress.total},
                              {"cache", progress.cache},
                              {"processed", progress.processed},
                              {"time_ms", progress.time_ms}};
  append_event(out, dump(chunk));
}

}  // namespace ingot::server::openai
