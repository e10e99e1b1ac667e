#include "cli/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <variant>
#include <vector>

#include "core/error.h"

namespace ingot::cli {
namespace {

struct Entry {
  std::string_view name;
  std::variant<float*, int32_t*, int64_t*> value;
  double least;
  double most;
};

std::vector<Entry> entries(ChatSettings& s) {
  SamplingParams& p = s.sampling.sampling;
  constexpr double kInt32 = std::numeric_limits<int32_t>::max();
  constexpr double kExact = 9007199254740992.0;  // up to here every whole number is a double
  return {{"temperature", &p.temperature, 0, 100},
          {"top_k", &p.top_k, 0, kInt32},
          {"top_p", &p.top_p, 1e-6, 1},
          {"min_p", &p.min_p, 0, 1},
          {"presence_penalty", &p.presence_penalty, -2, 2},
          {"frequency_penalty", &p.frequency_penalty, -2, 2},
          {"repetition_penalty", &p.repetition_penalty, 1e-3, 100},
          {"min_tokens", &p.min_tokens, 0, kInt32},
          {"max_tokens", &s.sampling.max_tokens, 1, kExact},
          {"seed", &s.sampling.seed, -1, kExact}};
}

}  // namespace

void ChatSettings::set(std::string_view name, std::string_view value) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const Entry& entry : entries(*this)) {
    if (entry.name != wanted) continue;
    const std::string text(value);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool whole = !std::holds_alternative<float*>(entry.value);
    if (text.empty() || *end != '\0' || !(number >= entry.least && number <= entry.most) ||
        (whole && number != std::floor(number)))
      throw_error(ErrorKind::bad_call, "{} must be a {}number from {} to {}, not `{}`", entry.name,
                  whole ? "whole " : "", entry.least, entry.most, text);
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
    out += fmt::format("{:<20}{}\n", entry.name,
                       std::visit([](auto* target) { return fmt::format("{}", *target); }, entry.value));
  return out;
}

}  // namespace ingot::cli
