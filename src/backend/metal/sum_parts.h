#pragma once

#include <cstdint>

#include "backend/metal/memory.h"

namespace ingot::metal {

struct Context;

// out = (0 + 1) + (2 + 3) + bias, or out += that: the kernel add_parts. Parts are f32 [count].
struct SumParts {
  int64_t count = 0;
  int64_t left = 1, right = 0;  // parts of each pair: 1 or 2, 0 to 2
  BufferView first, rest;       // the first part, and the others
  int64_t stride = 0;           // words from part to part of `rest`
  BufferView bias;              // f32 [dim], or none
  int64_t dim = 1;
  BufferView out;
  bool accumulate = false;
};
void encode_sum(Context& context, const SumParts& sum);

}  // namespace ingot::metal
