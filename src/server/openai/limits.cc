#include "server/openai/limits.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "core/printable.h"

namespace ingot::server::openai {
namespace {

constexpr auto kTable = std::to_array<LimitInfo>({
    {"choices", &RequestLimits::max_choices, 1, "prompts times choices (n, best_of, beams)"},
    {"prompts", &RequestLimits::max_prompts, 1, "prompts of a completions request"},
    {"inputs", &RequestLimits::max_inputs, 1, "texts of an embeddings request, documents of a rerank request"},
    {"logprobs", &RequestLimits::max_logprobs, 0, "alternatives reported for a token"},
    {"stops", &RequestLimits::max_stop, 0, "stop strings; bad words"},
    {"stop-bytes", &RequestLimits::max_stop_bytes, 1, "bytes of a stop string, a bad word or cache_salt"},
    {"grammar-bytes", &RequestLimits::max_grammar_bytes, 1, "bytes of a schema, a grammar or a regular expression"},
    {"json-values", &RequestLimits::max_values, 1, "values in a body"},
    {"json-keys", &RequestLimits::max_keys, 1, "keys of all objects in a body"},
    {"answer-bytes", &RequestLimits::max_answer_bytes, 1, "estimated size of an answer that is not streamed"},
});

}  // namespace

std::span<const LimitInfo> limit_table() { return kTable; }

void set_limit(RequestLimits& limits, std::string_view setting) {
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  const auto info = std::find_if(kTable.begin(), kTable.end(), [&](const LimitInfo& i) { return i.name == name; });
  if (info == kTable.end()) {
    std::string names;
    for (const LimitInfo& known : kTable) names += (names.empty() ? "" : ", ") + std::string(known.name);
    throw_error(ErrorKind::bad_call, "--limit {}: there is no such limit; there are {}", printable(name), names);
  }
  const std::string_view text = equals == setting.npos ? "" : setting.substr(equals + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < info->least)
    throw_error(ErrorKind::bad_call, "--limit {}: must be {}=NUMBER, at least {}", printable(setting), info->name,
                info->least);
  limits.*info->value = value;
}

}  // namespace ingot::server::openai
