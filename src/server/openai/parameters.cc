#include "server/openai/parameters.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFunctions = "is not supported by this server: use tools and tool_choice";
constexpr std::string_view kChatOnly = "is not supported here: use /v1/chat/completions";

// Sorted by subject.
constexpr auto kRules = std::to_array<ParameterRule>({
    {"user", Off::always},
    {"safety_identifier", Off::always},
    {"metadata", Off::always},
    {"store", Off::always},
    {"service_tier", Off::always},
    {"prompt_cache_key", Off::always},
    {"prompt_cache_retention", Off::always},
    {"prediction", Off::always},  // helps speed only
    {"request_id", Off::always},  // the header X-Request-Id names a request here
    {"spaces_between_special_tokens", Off::always},

    {"functions", Off::empty, kFunctions},
    {"function_call", Off::no_choice, kFunctions},
    {"tools", Off::empty, kChatOnly},
    {"tool_choice", Off::no_choice, kChatOnly},
    {"parallel_tool_calls", Off::always},
    {"reasoning_effort", Off::never, kChatOnly},
    {"include_reasoning", Off::is_true, kChatOnly},

    {"guided_decoding_backend", Off::always},  // there is one
    {"guided_whitespace_pattern", Off::empty, "is not supported by this server: white space is what JSON allows"},

    {"modalities", Off::text_only, "is not supported by this server except as [\"text\"]"},
    {"audio", Off::empty},
    {"web_search_options", Off::never},
    {"reasoning", Off::empty},
    {"thinking_token_budget", Off::never, kChatOnly},
    {"reasoning_budget_tokens", Off::never, kChatOnly},
    {"thinking_budget_tokens", Off::never, kChatOnly},
    {"verbosity", Off::medium},
    {"moderation", Off::empty},

    {"suffix", Off::empty, "is not supported: this server cannot insert text between a prompt and a suffix"},
    {"chat_template", Off::never, "is not taken from requests: the template comes with the model"},
    {"documents", Off::empty, "is not supported: put the documents into a message"},
    {"mm_processor_kwargs", Off::empty},
    {"media_io_kwargs", Off::empty},
    {"prompt_embeds", Off::empty},
    {"logits_processors", Off::empty},
    {"vllm_xargs", Off::empty},
    {"kv_transfer_params", Off::empty},
    {"lora_request", Off::empty},
    {"return_hidden_states", Off::is_false},
});

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
void check_type(const std::string& name, const Json& value) {
  const auto need = [&](bool good, std::string_view what) {
    if (!good) fail(name, "invalid_type", "must be {}, got {}", what, kind_of(value));
  };
  if (name == "metadata" || name == "prediction" || name == "cache_control" || name == "prompt_cache_options")
    return need(value.is_object(), "an object");
  if (name == "store" || name == "parallel_tool_calls" || name == "spaces_between_special_tokens")
    return need(value.is_boolean(), "true or false");
  if (name == "max_tool_calls") return need(value.is_number_integer(), "an integer");
  need(value.is_string(), "a string");
}

}  // namespace

void check_other_parameters(const Fields& fields) { check_other_parameters(fields, kRules); }

void check_other_parameters(const Fields& fields, std::span<const ParameterRule> rules) {
  for (const auto& [key, value] : fields.rest()) {
    const std::string name = printable(fields.path_of(key));
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return r.name == name; });
    if (rule == rules.end()) {
      const auto alias =
          std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.theirs == name; });
      if (alias != kAliases.end())
        fail(name, "unknown_parameter", "is not a parameter of this API: use {}", alias->ours);
      fail(name, "unknown_parameter", "is not a parameter of this API: leave it out");
    }
    if (!is_off(*value, rule->off)) fail(name, "unsupported_parameter", "{}", rule->hint);
    if (rule->off == Off::always) check_type(name, *value);
  }
}

}  // namespace ingot::server::openai
