#include <nlohmann/json.hpp>

#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/request.h"
#include "server/openai/sampling_fields.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

std::vector<InfillFormat::File> take_others(Fields& fields, const RequestLimits& limits) {
  const Json* list = fields.take("input_extra");
  if (list == nullptr) return {};
  if (!list->is_array()) fail("input_extra", "invalid_type", "must be a list of files, got {}", kind_of(*list));
  if (list->size() > static_cast<size_t>(limits.max_prompts))
    fail("input_extra", "array_above_max_length", "may hold at most {} files (--limit prompts), got {}",
         limits.max_prompts, list->size());
  std::vector<InfillFormat::File> others;
  for (const Json& element : *list) {
    Fields file(element, fmt::format("input_extra[{}]", others.size()));
    const std::optional<std::string> text = file.string("text");
    if (!text) fail(file.path_of("text"), "missing_required_parameter", "is missing");
    others.push_back({.name = file.string("filename").value_or("tmp"), .text = *text});
  }
  return others;
}

}  // namespace

// llama-server's /infill: its names where they differ from those of /v1/completions, whose others are taken too.
CompletionRequest parse_infill_request(std::string_view body, const RequestLimits& limits,
                                       const CancelFlag* cancelled) {
  const Json json = parse_body(body, limits, cancelled);
  Fields fields(json, kInfillEndpoint, limits);
  CompletionRequest request;
  request.id_prefix = "infill-";
  request.make_writer = make_infill_writer;
  const std::optional<std::string> prefix = fields.string("input_prefix"), suffix = fields.string("input_suffix");
  if (!prefix) fail("input_prefix", "missing_required_parameter", "is missing");
  if (!suffix) fail("input_suffix", "missing_required_parameter", "is missing");
  request.infill = {.suffix = *suffix, .others = take_others(fields, limits), .param = "input_suffix"};
  request.prompts = {*prefix + fields.string("prompt").value_or("")};
  take_shared_fields(fields, limits, request);
  request.output.continuous_usage = true;  // every event counts tokens
  request.output.response_fields = fields.strings("response_fields", limits);
  const std::optional<int64_t> predict = fields.integer("n_predict");
  if (predict && *predict >= 0) request.max_tokens = predict;
  check_other_parameters(fields);
  check_together(limits, 1, request);
  return request;
}

}  // namespace ingot::server::openai
