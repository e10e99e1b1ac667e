#include "backend/metal/host_blocks.h"

#include <algorithm>

namespace ingot::metal {
namespace {

constexpr size_t kHostBufferBytes = size_t{256} << 20;

}  // namespace

HostBlocks::HostBlocks(int64_t count, size_t block_bytes, Memory& memory)
    : block_bytes_(block_bytes),
      blocks_per_buffer_(std::max<int64_t>(1, static_cast<int64_t>(kHostBufferBytes / block_bytes))) {
  for (int64_t first = 0; first < count; first += blocks_per_buffer_) {
    const auto blocks = static_cast<size_t>(std::min(blocks_per_buffer_, count - first));
    buffers_.push_back(memory.new_shared(blocks * block_bytes, "host blocks"));
    auto* data = static_cast<std::byte*>(buffers_.back()->contents());
    for (size_t i = 0; i < blocks; ++i) spans_.emplace_back(data + i * block_bytes, block_bytes);
  }
}

BufferView HostBlocks::block(int64_t block) const {
  return {buffers_[static_cast<size_t>(block / blocks_per_buffer_)].get(),
          static_cast<size_t>(block % blocks_per_buffer_) * block_bytes_, block_bytes_};
}

template <typename Copy>
void HostBlocks::each_part(const KvCache& cache, int32_t device_block, int32_t host_block, const Copy& copy) const {
  const size_t bytes = cache.layout().block_bytes();
  BufferView host = block(host_block);
  host.bytes = bytes;
  for (int64_t layer = 0; layer < cache.layout().layers; ++layer)
    for (const bool value : {false, true}) {
      const BufferView part = cache.part(layer, value);
      copy(BufferView{part.buffer, part.offset + static_cast<size_t>(device_block) * bytes, bytes}, host);
      host.offset += bytes;
    }
}

void HostBlocks::save(MTL::BlitCommandEncoder* blit, const KvCache& cache, const StepView& view, int32_t first,
                      int32_t end) const {
  for (int32_t i = first; i < end; ++i)
    each_part(cache, view.block_saves()[2 * i], view.block_saves()[2 * i + 1],
              [&](const BufferView& device, const BufferView& host) {
                blit->copyFromBuffer(device.buffer, device.offset, host.buffer, host.offset, host.bytes);
              });
}

void HostBlocks::load(MTL::BlitCommandEncoder* blit, const KvCache& cache, const StepView& view, int32_t first,
                      int32_t end) const {
  for (int32_t i = first; i < end; ++i)
    each_part(cache, view.block_loads()[2 * i + 1], view.block_loads()[2 * i],
              [&](const BufferView& device, const BufferView& host) {
                blit->copyFromBuffer(host.buffer, host.offset, device.buffer, device.offset, host.bytes);
              });
}

}  // namespace ingot::metal
