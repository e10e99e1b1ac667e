#pragma once

#include <string>
#include <vector>

#include "backend/kv_layout.h"
#include "backend/metal/memory.h"

namespace ingot::metal {

// K and V of every layer, private to the GPU: one buffer a layer, K first.
class KvCache {
 public:
  KvCache(const KvLayout& layout, Memory& memory) : layout_(layout) {
    for (int64_t layer = 0; layer < layout.layers; ++layer)
      layers_.push_back(memory.new_zeros(2 * layout.half_bytes(), "kv " + std::to_string(layer)));
  }

  const KvLayout& layout() const { return layout_; }
  // K or V of one layer, or both.
  BufferView part(int64_t layer, bool value) const {
    const size_t half = layout_.half_bytes();
    return {buffer(layer), value ? half : 0, half};
  }
  BufferView whole(int64_t layer) const { return {buffer(layer), 0, 2 * layout_.half_bytes()}; }

 private:
  MTL::Buffer* buffer(int64_t layer) const { return layers_[static_cast<size_t>(layer)].get(); }

  KvLayout layout_;
  std::vector<BufferPtr> layers_;
};

}  // namespace ingot::metal
