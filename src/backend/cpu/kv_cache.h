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
//
// A block is [layers][K, V][kv_heads]: what is in use lies together, so huge pages waste nothing, and with them a
// layer's attention needs few address translations (on a Zen 4, 16 sequences of 512: 1.3 times as fast).
class KvCache {
 public:
  KvCache() = default;
  explicit KvCache(const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  // From a block to the next, in elements.
  int64_t block_stride() const { return static_cast<int64_t>(stride_bytes_ / kv_element_bytes(layout_.dtype)); }
  size_t stride_bytes() const { return stride_bytes_; }
  // From a KV head of a block to the next, in elements.
  int64_t head_stride() const { return static_cast<int64_t>(layout_.head_bytes() / kv_element_bytes(layout_.dtype)); }

  // One layer's K or V of a block: [kv_heads, ...]. V follows K.
  std::byte* block(int64_t layer, bool value, int64_t index) const {
    return memory_.data() + static_cast<size_t>(index) * stride_bytes_ +
           (2 * static_cast<size_t>(layer) + (value ? 1 : 0)) * layout_.block_bytes();
  }
  // The part of one KV head in it.
  std::byte* head(int64_t layer, bool value, int64_t block_index, int64_t kv_head) const {
    return block(layer, value, block_index) + static_cast<size_t>(kv_head) * layout_.head_bytes();
  }

  // All of one layer, in the layout seen from outside.
  void read(int64_t layer, bool value, std::span<std::byte> out) const;
  void write(int64_t layer, bool value, std::span<const std::byte> in);

  // One layer's K and V of a block.
  void zero_block(int64_t layer, int64_t block_index);
  void copy_block(int64_t layer, int64_t from, int64_t to);
  // From and to [layers][K, V] of host memory, as they are kept.
  void save_block(int64_t layer, int64_t block_index, std::byte* host) const;
  void load_block(int64_t layer, const std::byte* host, int64_t block_index);

 private:
  KvLayout layout_;
  size_t stride_bytes_ = 0;  // from a block to the next
  Pages memory_;
};

}  // namespace ingot::cpu
