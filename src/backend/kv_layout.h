#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kv_type.h"

namespace ingot {

// K and V of all layers: per layer [num_blocks, kv_heads, block_size, head_size], once for K and once for V. With int8
// the numbers of each block and KV head are followed by their scales, f32 [block_size].
struct KvLayout {
  int64_t layers = 0;
  int64_t num_blocks = 0;
  int64_t kv_heads = 0;
  int64_t block_size = 16;
  int64_t head_size = 0;
  KvType dtype = KvType::f16;

  size_t row_bytes() const {  // one position of one KV head, K or V alone, its scale included
    return static_cast<size_t>(head_size) * kv_element_bytes(dtype) + kv_scale_bytes(dtype);
  }
  size_t head_bytes() const { return static_cast<size_t>(block_size) * row_bytes(); }    // of a block, likewise
  size_t block_bytes() const { return static_cast<size_t>(kv_heads) * head_bytes(); }    // of a layer, likewise
  size_t half_bytes() const { return static_cast<size_t>(num_blocks) * block_bytes(); }  // K or V of a layer
  size_t total_bytes() const { return 2 * static_cast<size_t>(layers) * half_bytes(); }
};

}  // namespace ingot
