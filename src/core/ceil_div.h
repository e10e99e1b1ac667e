#pragma once

#include <cstdint>

namespace ingot {

// How many groups of `size` hold `count` things: blocks for positions, words for bits.
constexpr int64_t ceil_div(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace ingot
