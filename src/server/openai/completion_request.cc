#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/prompt_fields.h"
#include "server/openai/request.h"
#include "server/openai/sampling_fields.h"

namespace ingot::server::openai {
CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits,
                                           const CancelFlag* cancelled) {
  const nlohmann::ordered_json json = parse_body(body, limits, cancelled);
  Fields fields(json, kCompletionsEndpoint, limits);
  CompletionRequest request;
  request.id_prefix = "cmpl-";
  request.make_writer = make_completion_writer;
  request.prompts = take_prompts(fields, "prompt", {limits.max_prompts, "prompts"}, limits.vocab);
  take_shared_fields(fields, limits, request);
  if (std::optional<std::string> suffix = fields.string("suffix"); suffix && !suffix->empty()) {
    for (const Prompt& prompt : request.prompts)
      if (!std::holds_alternative<std::string>(prompt)) fail("prompt", "invalid_type", "must be text with suffix");
    request.infill = {.suffix = std::move(*suffix)};
  }
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);

  OutputOptions& output = request.output;
  GenerationRequest& generation = request.generation;
  if (const auto logprobs = fields.integer("logprobs")) {
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
