#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/metal/memory.h"
#include "core/error.h"

namespace ingot::metal {

// K and V of every layer, private to the GPU: one buffer a layer, K first.
class KvCache {
 public:
  KvCache(const KvLayout& layout, Memory& memory) : layout_(layout) {
    for (int64_t layer = 0; layer < layout.layers; ++layer) {
      layers_.push_back(memory.new_private(2 * half_bytes(), "kv " + std::to_string(layer)));
      memory.fill_zero({layers_.back().get(), 0, 2 * half_bytes()});
    }
  }

  const KvLayout& layout() const { return layout_; }
  size_t half_bytes() const { return static_cast<size_t>(layout_.num_blocks) * layout_.block_bytes(); }
  // K or V of one layer, or both.
  BufferView part(int64_t layer, bool value) const { return {buffer(layer), value ? half_bytes() : 0, half_bytes()}; }
  BufferView whole(int64_t layer) const { return {buffer(layer), 0, 2 * half_bytes()}; }

 private:
  MTL::Buffer* buffer(int64_t layer) const {
    if (layer < 0 || layer >= layout_.layers)
      throw_error(ErrorKind::internal, "metal: no layer {} in the KV cache", layer);
    return layers_[static_cast<size_t>(layer)].get();
  }

  KvLayout layout_;
  std::vector<BufferPtr> layers_;
};

}  // namespace ingot::metal
