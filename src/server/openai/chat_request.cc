#include <nlohmann/json.hpp>

#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/messages.h"
#include "server/openai/parameters.h"
#include "server/openai/sampling_fields.h"

namespace ingot::server::openai {

CompletionRequest parse_chat_request(std::string_view body, const RequestLimits& limits, const CancelFlag* cancelled) {
  nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kChatEndpoint, limits);
  CompletionRequest request;
  request.id_prefix = "chatcmpl-";
  request.make_writer = make_chat_writer;
  request.chat = take_chat_input(fields, json);
  take_shared_fields(fields, limits, request);

  // The newer name wins, as in OpenAI's service.
  if (const auto newer = fields.integer("max_completion_tokens"))
    request.max_tokens = newer;
  else if (request.max_tokens == 0)
    fail("max_tokens", "integer_below_min_value", "must be at least 1, got 0");

  OutputOptions& output = request.output;
  output.logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs")) {
    if (!output.logprobs) fail("top_logprobs", "invalid_value", "may be set only together with logprobs: true");
    output.top_logprobs = static_cast<int32_t>(*top);
  }
  if (output.logprobs) request.generation.logprobs = output.top_logprobs;
  check_other_parameters(fields);
  check_together(limits, 1, request);
  return request;
}

}  // namespace ingot::server::openai
