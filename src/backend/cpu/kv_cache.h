#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/kv_layout.h"

namespace ingot::cpu {

// K and V of all layers, in blocks. From outside a block of one KV head is [block_size, head_size], for K and V alike.
// Inside, K is kept as [head_size, block_size]: the keys that a vector of scores needs then lie side by side, and
// nothing has to be transposed while attending. read() and write() turn it around. Scales follow the numbers in both.
class KvCache {
 public:
  KvCache() = default;
  explicit KvCache(const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  // From a block to the next, in elements.
  int64_t block_stride() const { return static_cast<int64_t>(layout_.block_bytes() / kv_element_bytes(layout_.dtype)); }

  // One layer's K or V: [num_blocks, kv_heads, ...].
  std::byte* layer(int64_t layer, bool value) const {
    return memory_.data() + (2 * static_cast<size_t>(layer) + (value ? 1 : 0)) * layer_bytes_;
  }
  // The part of one KV head in one block.
  std::byte* head(int64_t layer_index, bool value, int64_t block, int64_t kv_head) const {
    return layer(layer_index, value) + static_cast<size_t>(block * layout_.kv_heads + kv_head) * layout_.head_bytes();
  }

  // All of one layer, in the layout seen from outside.
  void read(int64_t layer, bool value, std::span<std::byte> out) const;
  void write(int64_t layer, bool value, std::span<const std::byte> in);

  // One layer's K and V of a block.
  void zero_block(int64_t layer, int64_t block);
  void copy_block(int64_t layer, int64_t from, int64_t to);
  // From and to [layers][K, V] of host memory, as they are kept.
  void save_block(int64_t layer, int64_t block, std::byte* host) const;
  void load_block(int64_t layer, const std::byte* host, int64_t block);

 private:
  KvLayout layout_;
  size_t layer_bytes_ = 0;  // of K or V
  Pages memory_;
};

}  // namespace ingot::cpu
