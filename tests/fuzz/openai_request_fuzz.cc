// Any bytes as the body of each endpoint: refused as a client's error, or read into a request within the limits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "server/anthropic/request.h"
#include "server/openai/errors.h"
#include "server/openai/request.h"
#include "server/responses/request.h"
#include "text/chat_template.h"
#include "time_bound.h"

namespace {

using namespace ingot::server::openai;

constexpr RequestLimits kLimits = {.vocab = 1000, .max_n = 8, .max_beams = 4, .max_choices = 16, .max_logprobs = 20};

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check_tokens(const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) require(token >= 0 && token < kLimits.vocab);
}

// What the orchestrator and the engine rely on.
void check(const CompletionRequest& request) {
  const ingot::GenerationRequest& g = request.generation;
  const ingot::SamplingParams& s = g.sampling;
  require(std::isfinite(s.temperature) && s.temperature >= 0 &&
          (s.temperature == 0 || std::isfinite(1 / s.temperature)));
  require(s.top_p > 0 && s.top_p <= 1);
  require(s.min_p >= 0 && s.min_p <= 1);
  require(s.top_k >= 0 && s.min_tokens >= 0);
  require(std::isfinite(s.presence_penalty) && std::isfinite(s.frequency_penalty));
  require(std::isfinite(s.repetition_penalty) && s.repetition_penalty > 0);
  require(g.n >= 1 && g.n <= kLimits.max_n && (g.best_of == 0 || g.best_of >= g.n));
  require(!g.beam_search || s.temperature == 0);
  require(std::isfinite(g.length_penalty));
  require(g.logprobs <= kLimits.max_logprobs && g.prompt_logprobs <= kLimits.max_logprobs);
  require(!request.max_tokens || *request.max_tokens >= 0);
  check_tokens(s.stop_token_ids);
  check_tokens(s.allowed_token_ids);
  for (const auto& [token, bias] : s.logit_bias) {
    check_tokens({token});
    require(std::fabs(bias) <= 100);
  }
  for (const Prompt& prompt : request.prompts)
    if (const auto* tokens = std::get_if<std::vector<int32_t>>(&prompt)) check_tokens(*tokens);
  require(request.chat ? request.prompts.empty() : !request.prompts.empty());
  if (request.chat) {
    require(request.chat->messages->is_array() && !request.chat->messages->empty());
    request.chat->last_text();
    request.chat->last_role();
  }
}

// As the server makes a prompt of it.
void render(const CompletionRequest& request) {
  static const ingot::ChatTemplate chat(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls }}{{ m }}{% endfor %}{{ name }}{{ a }}{{ b "
      "}}",
      "<s>", "</s>");
  try {
    chat.render(*request.chat->messages, {.add_generation_prompt = request.chat->add_generation_prompt,
                                          .continue_final_message = request.chat->continue_final_message,
                                          .extra = request.chat->template_variables.get()});
  } catch (const ingot::Error& error) {
    require(error.kind() != ingot::ErrorKind::internal);
  }
}

template <typename Parse>
void attempt(Parse&& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    require(error.status() == 400);
    const nlohmann::json body = nlohmann::json::parse(to_error_reply(error).json());
    require(body["error"]["message"].is_string() && !body["error"]["message"].empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const TimeBound bound(size);
  attempt([&] {
    const CompletionRequest request = parse_chat_request(body, kLimits);
    check(request);
    render(request);
  });
  attempt([&] { check(parse_completion_request(body, kLimits)); });
  attempt([&] {
    static const auto store = std::make_shared<ingot::server::responses::ResponseStore>(
        ingot::server::responses::ResponseStore::Limits{.bytes = 0});
    const CompletionRequest request = ingot::server::responses::parse_request(body, kLimits, nullptr, store, "");
    check(request);
    render(request);
  });
  attempt([&] {
    const CompletionRequest request = ingot::server::anthropic::parse_request(body, kLimits, nullptr);
    check(request);
    render(request);
  });
  attempt([&] { parse_tokenize_request(body, kLimits); });
  attempt([&] { check_tokens(parse_detokenize_request(body, kLimits).tokens); });
  return 0;
}
