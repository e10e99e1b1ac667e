#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// What a request may ask for, whoever it comes from: a client of the server, a flag, `/set` of a chat, or a caller of
// Llm. The engine itself takes any number that has a meaning.
struct SamplingRange {
  std::string_view name;
  double least;
  double most;
  bool above = false;  // `least` itself is too little
};

inline constexpr double kMostInt32 = std::numeric_limits<int32_t>::max();
inline constexpr SamplingRange kSamplingRanges[] = {
    {"temperature", 0, 100},
    {"top_k", -1, kMostInt32},
    {"top_p", 0, 1, true},
    {"min_p", 0, 1},
    {"presence_penalty", -2, 2},
    {"frequency_penalty", -2, 2},
    {"repetition_penalty", 0.01, 100},
    {"min_tokens", 0, kMostInt32},
};

// `name` must be one of them.
constexpr const SamplingRange& sampling_range(std::string_view name) {
  const SamplingRange* range = kSamplingRanges;
  while (range->name != name) ++range;
  return *range;
}

// As people would write the number: 0.9f is not 0.9.
inline double as_written(float value) { return std::stod(fmt::format("{}", value)); }

struct RangeFault {
  bool below;
  std::string reason;  // "must be at most 1, got 3"
};
inline std::optional<RangeFault> outside(const SamplingRange& range, double value) {
  const auto got = [value] {  // 1.1f is not 1.1, but was meant so
    return static_cast<float>(value) == value ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
  };
  if (!(value >= range.least) || (range.above && static_cast<float>(value) <= range.least))
    return RangeFault{true,
                      fmt::format("must be {} {}, got {}", range.above ? "above" : "at least", range.least, got())};
  if (!(value <= range.most)) return RangeFault{false, fmt::format("must be at most {}, got {}", range.most, got())};
  return std::nullopt;
}

}  // namespace ingot
