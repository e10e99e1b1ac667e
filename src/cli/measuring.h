#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// What the benchmarks have in common.
namespace ingot::cli {

// 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A token of a prompt. Any ids will do; these begin behind the special ones at the low end.
inline int32_t prompt_token(int64_t i, int64_t vocab) { return static_cast<int32_t>((1000 + i * 7919) % vocab); }

}  // namespace ingot::cli
