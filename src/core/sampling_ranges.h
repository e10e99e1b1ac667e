#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace ingot {

// What a request may ask for, whoever it comes from: the server's clients, or `/set` of a chat. The engine itself takes
// any number that has a meaning.
struct SamplingRange {
  std::string_view name;
  double least;
  double most;
  bool above = false;  // `least` itself is too little
};

inline constexpr double kMostInt32 = std::numeric_limits<int32_t>::max();
inline constexpr SamplingRange kSamplingRanges[] = {
    {"temperature", 0, 100},
    {"top_k", 0, kMostInt32},
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

}  // namespace ingot
