#include <nlohmann/json.hpp>

#include "server/openai/errors.h"
#include "server/openai/messages.h"
#include "server/openai/parameters.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

TokenizeRequest parse_tokenize_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled) {
  nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kTokenizeEndpoint, limits);
  TokenizeRequest request;
  request.model = fields.string("model").value_or("");
  request.return_token_strs = fields.boolean("return_token_strs").value_or(false);
  if (const auto prompt = fields.string("prompt")) {
    request.prompt = *prompt;
    request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
    if (fields.take("messages") != nullptr)
      fail("messages", "invalid_value", "and prompt exclude each other: send one of them");
  } else {
    request.chat = take_chat_input(fields, json);
  }
  check_other_parameters(fields);
  return request;
}

TemplateRequest parse_template_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled) {
  nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kTemplateEndpoint, limits);
  TemplateRequest request;
  request.model = fields.string("model").value_or("");
  request.chat = take_chat_input(fields, json);
  check_other_parameters(fields);
  return request;
}

DetokenizeRequest parse_detokenize_request(std::string_view body, const RequestLimits& limits,
                                           const CancelFlag* cancelled) {
  const nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kDetokenizeEndpoint, limits);
  DetokenizeRequest request;
  request.model = fields.string("model").value_or("");
  const nlohmann::ordered_json* tokens = fields.take("tokens");
  if (tokens == nullptr) fail("tokens", "missing_required_parameter", "is missing");
  if (!tokens->is_array()) fail("tokens", "invalid_type", "must be a list of token ids, got {}", kind_of(*tokens));
  request.tokens = token_list(*tokens, "tokens", limits.vocab);
  check_other_parameters(fields);
  return request;
}

}  // namespace ingot::server::openai
