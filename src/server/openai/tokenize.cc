#include "server/openai/tokenize.h"

#include <nlohmann/json.hpp>

namespace ingot::server::openai {

namespace {
constexpr uint64_t kTokenBytes = 8;  // of an id in the answer
}

// Written as it goes: a tree of a million numbers would be a hundred times what they are.
HttpReply tokenize(const ServedModel& model, std::string_view body, const CancelFlag* cancelled) {
  const TokenizeRequest request = parse_tokenize_request(body, model.request_limits(), cancelled);
  model.check_name(request.model);
  model.check_answer("prompt", kTokenBytes * request.prompt.size());
  const std::vector<int32_t> ids =
      request.chat ? model.encode(*request.chat, true, cancelled)
                   : model.encode("prompt", request.prompt, request.add_special_tokens, true, cancelled);
  std::string reply = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":)", ids.size(),
                                  model.context(), fmt::join(ids, ","));
  if (request.return_token_strs) {
    const Tokenizer& tokenizer = model.tokenizer("prompt");
    for (size_t i = 0; i < ids.size(); ++i) {
      reply += i == 0 ? '[' : ',';
      reply += dump(tokenizer.token_text(ids[i]));
    }
    reply += ids.empty() ? "[]" : "]";
  } else {
    reply += "null";
  }
  return {.body = reply + "}"};
}

HttpReply detokenize(const ServedModel& model, std::string_view body, const CancelFlag* cancelled) {
  const DetokenizeRequest request = parse_detokenize_request(body, model.request_limits(), cancelled);
  model.check_name(request.model);
  model.check_answer("tokens", model.longest_token() * request.tokens.size());
  return {.body = dump({{"prompt", model.tokenizer("tokens").decode(request.tokens, false)}})};
}

HttpReply apply_template(const ServedModel& model, std::string_view body, const CancelFlag* cancelled) {
  const TemplateRequest request = parse_template_request(body, model.request_limits(), cancelled);
  model.check_name(request.model);
  std::string prompt = model.render(request.chat, cancelled).text;
  model.check_answer("messages", prompt.size());
  return {.body = dump({{"prompt", std::move(prompt)}})};
}

}  // namespace ingot::server::openai
