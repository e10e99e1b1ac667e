#include "model/sampling_advice.h"

#include <functional>

#include "core/error.h"
#include "core/sampling_ranges.h"
#include "formats/gguf.h"
#include "formats/json.h"

namespace ingot {
namespace {

// `find` gives the number under one of our names.
SamplingAdvice collect(const std::function<std::optional<double>(std::string_view)>& find) {
  const auto sound = [&](std::string_view name) {
    try {
      const std::optional<double> value = find(name);
      if (value && !outside(sampling_range(name), *value)) return value;
    } catch (const Error&) {  // not a number
    }
    return std::optional<double>();
  };
  SamplingAdvice advice;
  const auto take = [&](std::string_view name, std::optional<float>& into) {
    if (const auto value = sound(name)) into = static_cast<float>(*value);
  };
  take("temperature", advice.temperature);
  take("top_p", advice.top_p);
  take("min_p", advice.min_p);
  take("repetition_penalty", advice.repetition_penalty);
  if (const auto value = sound("top_k")) advice.top_k = static_cast<int32_t>(*value);
  return advice;
}

// Makers who publish their advice on a page only, found by what their files say about themselves.
struct Published {
  std::string_view basename, size, organization;
  SamplingAdvice advice;
};
const Published kPublished[] = {
    {"smollm2", "135M", "HuggingFaceTB", {.temperature = 0.2f, .top_p = 0.9f}},
    {"smollm2", "360M", "HuggingFaceTB", {.temperature = 0.2f, .top_p = 0.9f}},
    {"smollm2", "1.7B", "HuggingFaceTB", {.temperature = 0.2f, .top_p = 0.9f}},
};

}  // namespace

SamplingAdvice read_sampling_advice(const JsonView& generation_config) {
  if (!generation_config.find_bool("do_sample").value_or(true)) return {};  // the numbers beside it are not meant
  return collect([&](std::string_view name) { return generation_config.find_double(name); });
}

SamplingAdvice read_sampling_advice(const GgufFile& file) {
  const SamplingAdvice stored = collect([&](std::string_view name) {
    const std::string key = name == "temperature"          ? "temp"
                            : name == "repetition_penalty" ? "penalty_repeat"
                                                           : std::string(name);
    return file.get_double("general.sampling." + key);
  });
  if (stored != SamplingAdvice{}) return stored;
  const auto says = [&](std::string_view key, std::string_view value) {
    return file.get_string(key).value_or("") == value;
  };
  for (const Published& known : kPublished)
    if (says("general.basename", known.basename) && says("general.size_label", known.size) &&
        says("general.organization", known.organization))
      return known.advice;
  return {};
}

}  // namespace ingot
