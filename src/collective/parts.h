#pragma once

#include <cstdint>

namespace ingot {

// The part [begin, end) of `count` things in a row that a rank has of them, where all have as many as can be.
struct Part {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
inline Part part_of(int64_t count, int rank, int ranks) { return {count * rank / ranks, count * (rank + 1) / ranks}; }

}  // namespace ingot
