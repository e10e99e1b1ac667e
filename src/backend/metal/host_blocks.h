#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/metal/kv_cache.h"
#include "backend/metal/memory.h"
#include "step/view.h"

namespace ingot::metal {

// Blocks in memory that the host shares: [layers][K, V] each, in a few buffers, as one may be too large for the GPU.
class HostBlocks {
 public:
  HostBlocks(int64_t count, size_t block_bytes, Memory& memory);

  std::vector<std::span<std::byte>> spans() const { return spans_; }
  // Saves and loads [first, end) of a step; encoders of their own, so that a fence orders them.
  void save(MTL::BlitCommandEncoder* blit, const KvCache& cache, const StepView& view, int32_t first,
            int32_t end) const;
  void load(MTL::BlitCommandEncoder* blit, const KvCache& cache, const StepView& view, int32_t first,
            int32_t end) const;

 private:
  BufferView block(int64_t block) const;
  // copy(part of a block on the device, where in the host block it is), for each layer's K and V
  template <typename Copy>
  void each_part(const KvCache& cache, int32_t device_block, int32_t host_block, const Copy& copy) const;

  size_t block_bytes_;
  int64_t blocks_per_buffer_;
  std::vector<BufferPtr> buffers_;
  std::vector<std::span<std::byte>> spans_;
};

}  // namespace ingot::metal
