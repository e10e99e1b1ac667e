#pragma once

#include <Metal/Metal.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/counters.h"

namespace ingot::metal {

using BufferPtr = NS::SharedPtr<MTL::Buffer>;

// A part of a buffer, as a kernel's argument.
struct BufferView {
  MTL::Buffer* buffer = nullptr;
  size_t offset = 0;
  size_t bytes = 0;
  explicit operator bool() const { return buffer != nullptr; }
};
inline BufferView whole(const BufferPtr& buffer) { return {buffer.get(), 0, buffer->length()}; }

// Makes buffers and fills private ones. Everything here happens while a model is loaded, or in tests' explicit copies;
// never between begin() and wait() of a step.
class Memory {
 public:
  Memory(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::CommandQueue> queue, DeviceCounters& counters);

  // Private to the GPU, of `bytes` rounded up to 16, never empty. The label's first word says what it is for (weight,
  // kv, scratch, input, output, work): traffic is reported by it.
  BufferPtr new_private(size_t bytes, const std::string& label);
  BufferPtr new_zeros(size_t bytes, const std::string& label);  // likewise
  BufferPtr new_shared(size_t bytes, const std::string& label);
  // The first bytes of a private buffer for work, made, or made larger, where a rehearsal finds it too small.
  BufferView reserve(BufferPtr& buffer, size_t bytes, const char* label);
  void release(BufferPtr& buffer);  // before the process ends; `buffer` is null then

  // A private buffer filled through the small staging buffers. `fill(offset, chunk)` is called for consecutive chunks
  // from offset 0 on; each is a multiple of `granule` bytes (a row of a packed matrix, say), the last one excepted when
  // `bytes` is not. A granule larger than a staging buffer (16 MiB) is refused.
  using Fill = std::function<void(size_t offset, std::span<std::byte> chunk)>;
  BufferPtr upload(size_t bytes, const std::string& label, size_t granule, const Fill& fill);

  // Explicit copies between host memory and a private buffer; each waits.
  void write(BufferView to, std::span<const std::byte> from);
  void read(BufferView from, std::span<std::byte> to);
  void copy(BufferView from, BufferView to);  // between private ones; waits too

  // Makes everything allocated so far resident for the queue's command buffers, where the system can.
  void commit_residency();

 private:
  BufferPtr allocate(size_t bytes, MTL::ResourceOptions options, const std::string& label);
  MTL::Buffer* staging(size_t index);
  void run(const std::function<void(MTL::BlitCommandEncoder*)>& encode);

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::CommandQueue> queue_;
  NS::SharedPtr<MTL::ResidencySet> residency_;
  BufferPtr staging_[2];
  DeviceCounters& counters_;
};

}  // namespace ingot::metal
