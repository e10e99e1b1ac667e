#include "server/openai/tokenize.h"

#include <nlohmann/json.hpp>

namespace ingot::server::openai {

using Json = nlohmann::ordered_json;

HttpReply tokenize(const ServedModel& model, std::string_view body) {
  const TokenizeRequest request = parse_tokenize_request(body, model.request_limits());
  model.check_name(request.model);
  const std::vector<int32_t> ids =
      request.chat ? model.encode(*request.chat) : model.encode(request.prompt, request.add_special_tokens);
  Json reply = {{"count", ids.size()}, {"max_model_len", model.context()}, {"tokens", ids}, {"token_strs", nullptr}};
  if (request.return_token_strs) {
    const Tokenizer& tokenizer = model.tokenizer("prompt");
    Json texts = Json::array();
    for (const int32_t id : ids) texts.push_back(tokenizer.token_text(id));
    reply["token_strs"] = std::move(texts);
  }
  return {.body = dump(reply)};
}

HttpReply detokenize(const ServedModel& model, std::string_view body) {
  const DetokenizeRequest request = parse_detokenize_request(body, model.request_limits());
  model.check_name(request.model);
  return {.body = dump({{"prompt", model.tokenizer("tokens").decode(request.tokens, false)}})};
}

}  // namespace ingot::server::openai
