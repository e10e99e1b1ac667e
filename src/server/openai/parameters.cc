#include "server/openai/parameters.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "core/sampling_ranges.h"
#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

// Other servers' names for what is supported here.
struct Alias {
  std::string_view theirs, ours;
};
constexpr auto kAliases = std::to_array<Alias>({
    {"repeat_penalty", "repetition_penalty"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"stop_sequences", "stop"},
    {"reasoning_budget", "thinking_token_budget"},
    {"thinking_budget", "thinking_token_budget"},
    {"num_beams", "use_beam_search with n or best_of"},
    {"n_probs", "logprobs"},
    {"typ_p", "top_p or min_p"},
    {"typical_p", "top_p or min_p"},
});

bool is_off(const Json& value, Off off) {
  switch (off) {
    case Off::used: return false;
    case Off::always: return true;
    case Off::empty: return (value.is_structured() && value.empty()) || value == Json("");
    case Off::no_choice: return value == Json("none") || value == Json("auto");
    case Off::text_only: return value == Json::array({"text"});
    case Off::is_true: return value == Json(true);
    case Off::is_false: return value == Json(false);
    case Off::medium: return value == Json("medium");
    case Off::never: return false;
  }
  return false;
}

// The harmless ones are still checked for their type: a client that sends nonsense should hear of it.
void check_type(const std::string& name, ValueType type, const Json& value) {
  const auto need = [&](bool good, std::string_view what) {
    if (!good) fail(name, "invalid_type", "must be {}, got {}", what, kind_of(value));
  };
  switch (type) {
    case ValueType::object: return need(value.is_object(), "an object");
    case ValueType::boolean: return need(value.is_boolean(), "true or false");
    case ValueType::integer: return need(value.is_number_integer(), "an integer");
    case ValueType::texts: return need(value.is_array() || value.is_string(), "a string or an array");
    default: need(value.is_string(), "a string");
  }
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  const auto alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.theirs == name; });
  if (alias != kAliases.end()) fail(name, "unknown_parameter", "is not a parameter of this API: use {}", alias->ours);
  fail(name, "unknown_parameter", "is not a parameter of this API: leave it out");
}

}  // namespace

SamplingRange range_of(const Parameter& parameter) {
  if (parameter.least == std::numeric_limits<int64_t>::min()) return sampling_range(parameter.name);
  return {parameter.name, static_cast<double>(parameter.least), static_cast<double>(parameter.most)};
}

void check_other_parameters(const Fields& fields) {
  for (const auto& [key, value] : fields.rest()) {
    const std::string name = printable(fields.path_of(key));
    const Parameter* parameter = find_parameter(name, fields.endpoint());
    if (parameter == nullptr || parameter->off == Off::used) refuse_unknown(name);
    if (!is_off(*value, parameter->off)) fail(name, "unsupported_parameter", "{}", parameter->hint);
    if (parameter->off == Off::always) check_type(name, parameter->type, *value);
  }
}

}  // namespace ingot::server::openai
