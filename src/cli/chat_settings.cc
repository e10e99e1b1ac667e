#include "cli/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/sampling_ranges.h"

namespace ingot::cli {
namespace {

struct Entry {
  std::variant<float*, int32_t*, int64_t*> value;
  SamplingRange range;
};

std::vector<Entry> entries(ChatSettings& s) {
  SamplingParams& p = s.sampling.sampling;
  constexpr double kExact = 9007199254740992.0;  // up to here every whole number is a double
  return {{&p.temperature, sampling_range("temperature")},
          {&p.top_k, sampling_range("top_k")},
          {&p.top_p, sampling_range("top_p")},
          {&p.min_p, sampling_range("min_p")},
          {&p.presence_penalty, sampling_range("presence_penalty")},
          {&p.frequency_penalty, sampling_range("frequency_penalty")},
          {&p.repetition_penalty, sampling_range("repetition_penalty")},
          {&p.min_tokens, sampling_range("min_tokens")},
          {&s.sampling.max_tokens, {"max_tokens", 1, kExact}},
          {&s.sampling.seed, {"seed", -1, kExact}}};
}

}  // namespace

void ChatSettings::set(std::string_view name, std::string_view value) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const Entry& entry : entries(*this)) {
    if (entry.range.name != wanted) continue;
    const std::string text(value);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool whole = !std::holds_alternative<float*>(entry.value);
    if (text.empty() || *end != '\0' || (whole && number != std::floor(number)))
      throw_bad_parameter(wanted, "must be a {}number, not `{}`", whole ? "whole " : "", text);
    if (const auto fault = outside(entry.range, number)) throw_bad_parameter(wanted, "{}", fault->reason);
    std::visit([number](auto* target) { *target = static_cast<std::remove_pointer_t<decltype(target)>>(number); },
               entry.value);
    return;
  }
  throw_error(ErrorKind::bad_call, "there is no setting `{}`; /set lists them", wanted);
}

std::string ChatSettings::list() const {
  ChatSettings copy = *this;
  std::string out;
  for (const Entry& entry : entries(copy))
    out += fmt::format("{:<20}{}\n", entry.range.name,
                       std::visit([](auto* target) { return fmt::format("{}", *target); }, entry.value));
  return out;
}

}  // namespace ingot::cli
