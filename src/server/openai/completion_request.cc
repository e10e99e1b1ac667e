#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/request.h"
#include "server/openai/sampling_fields.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

Prompt token_prompt(const Json& list, const std::string& path, int64_t vocab) {
  if (list.empty()) fail(path, "empty_array", "may not be empty");
  return token_list(list, path, vocab);
}

// A string, token ids, or a list of either.
std::vector<Prompt> take_prompts(Fields& fields, const RequestLimits& limits) {
  const Json* prompt = fields.take("prompt");
  if (prompt == nullptr) fail("prompt", "missing_required_parameter", "is missing");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array())
    fail("prompt", "invalid_type", "must be a string, token ids, or a list of either, got {}", kind_of(*prompt));
  if (prompt->empty()) fail("prompt", "empty_array", "may not be empty");
  if ((*prompt)[0].is_number()) return {token_prompt(*prompt, "prompt", limits.vocab)};
  if (prompt->size() > static_cast<size_t>(limits.max_prompts))
    fail("prompt", "array_above_max_length", "may hold at most {} prompts (--limit prompts), got {}",
         limits.max_prompts, prompt->size());
  std::vector<Prompt> prompts;
  for (const Json& element : *prompt) {
    const std::string path = fmt::format("prompt[{}]", prompts.size());
    if (element.is_string()) {
      prompts.emplace_back(element.get<std::string>());
    } else if (element.is_array()) {
      prompts.push_back(token_prompt(element, path, limits.vocab));
    } else {
      fail(path, "invalid_type", "must be a string or a list of token ids, got {}", kind_of(element));
    }
  }
  return prompts;
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits,
                                           const CancelFlag* cancelled) {
  const Json json = parse_body(body, limits, cancelled);
  Fields fields(json);
  CompletionRequest request;
  request.id_prefix = "cmpl-";
  request.make_writer = make_completion_writer;
  request.prompts = take_prompts(fields, limits);
  take_shared_fields(fields, limits, request);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);

  OutputOptions& output = request.output;
  GenerationRequest& generation = request.generation;
  if (const auto logprobs = fields.integer("logprobs", 0, limits.max_logprobs)) {
    output.logprobs = true;
    output.top_logprobs = static_cast<int32_t>(*logprobs);
    generation.logprobs = output.top_logprobs;
    // The prompt's tokens are listed too when it is echoed.
    if (output.echo) generation.prompt_logprobs = std::max(generation.prompt_logprobs, output.top_logprobs);
  }
  if (!request.max_tokens) request.max_tokens = 16;
  if (*request.max_tokens == 0 && std::max(generation.n, generation.best_of) > 1)
    fail("n", "invalid_value", "must be 1 with max_tokens: 0, got {}", generation.n);
  check_other_parameters(fields);
  check_together(limits, request.prompts.size(), request);
  return request;
}

}  // namespace ingot::server::openai
