#include "backend/metal/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/metal/commands.h"
#include "backend/metal/host_hooks.h"
#include "core/error.h"
#include "core/memory.h"

namespace ingot::metal {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;

// Copies on macOS are whole words. Buffers are rounded up to 16 bytes, regions of scratch to 64, so the last one fits.
constexpr size_t whole_words(size_t bytes) { return (bytes + 3) / 4 * 4; }

// The copies of an upload that may still run, one out of each staging buffer. All are over when this is gone.
class Uploads {
 public:
  Uploads(const std::string& label, DeviceCounters& counters) : label_(label), counters_(counters) {}
  ~Uploads() {
    for (const auto& commands : commands_)
      if (commands) wait_for(commands.get(), counters_);
  }

  void start(size_t turn, MTL::CommandBuffer* commands) {
    commit(commands, counters_);
    commands_[turn] = NS::RetainPtr(commands);
  }
  void finish(size_t turn) {
    const auto commands = std::exchange(commands_[turn], {});
    if (!commands) return;
    wait_for(commands.get(), counters_);
    if (NS::Error* error = commands->error())
      throw_error(ErrorKind::device, "gpu: uploading {} failed: {}", label_,
                  error->localizedDescription()->utf8String());
  }

 private:
  const std::string& label_;
  DeviceCounters& counters_;
  NS::SharedPtr<MTL::CommandBuffer> commands_[2];
};

}  // namespace

Memory::Memory(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::CommandQueue> queue, DeviceCounters& counters)
    : device_(std::move(device)), queue_(std::move(queue)), counters_(counters) {
  if (!host::has_residency_sets()) return;
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  const auto descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  NS::Error* error = nullptr;
  residency_ = NS::TransferPtr(device_->newResidencySet(descriptor.get(), &error));
  if (residency_) queue_->addResidencySet(residency_.get());
}

BufferPtr Memory::allocate(size_t bytes, MTL::ResourceOptions options, const std::string& label) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  bytes = std::max<size_t>((bytes + 15) / 16 * 16, 16);
  if (bytes > device_->maxBufferLength())
    throw_error(ErrorKind::out_of_memory, "gpu: {} needs a buffer of {}, the GPU's limit is {}", label,
                format_bytes(bytes), format_bytes(device_->maxBufferLength()));
  BufferPtr buffer = NS::TransferPtr(device_->newBuffer(bytes, options | MTL::ResourceHazardTrackingModeUntracked));
  if (!buffer)
    throw_error(ErrorKind::out_of_memory, "gpu: no memory for {} of {}; use a smaller model or fewer KV blocks",
                format_bytes(bytes), label);
  buffer->setLabel(NS::String::string(label.c_str(), NS::UTF8StringEncoding));
  ++counters_.allocations;
  if (residency_) residency_->addAllocation(buffer.get());
  return buffer;
}

BufferPtr Memory::new_private(size_t bytes, const std::string& label) {
  return allocate(bytes, MTL::ResourceStorageModePrivate, label);
}
BufferPtr Memory::new_shared(size_t bytes, const std::string& label) {
  return allocate(bytes, MTL::ResourceStorageModeShared, label);
}

void Memory::release(BufferPtr& buffer) {
  if (residency_) residency_->removeAllocation(buffer.get());
  buffer = {};
  if (residency_) residency_->commit();
}

void Memory::commit_residency() {
  if (!residency_) return;
  residency_->commit();
  residency_->requestResidency();
}

MTL::Buffer* Memory::staging(size_t index) {
  if (!staging_[index]) staging_[index] = new_shared(kStagingBytes, "staging");
  return staging_[index].get();
}

BufferView Memory::reserve(BufferPtr& buffer, size_t bytes, const char* label) {
  if (!buffer || buffer->length() < bytes) {
    buffer = new_private(bytes, label);
    commit_residency();
  }
  return {buffer.get(), 0, bytes};
}

BufferPtr Memory::upload(size_t bytes, const std::string& label, size_t granule, const Fill& fill) {
  if (granule == 0 || granule > kStagingBytes)
    throw_error(ErrorKind::internal, "gpu: {} in pieces of {} bytes, the staging buffers have {}", label, granule,
                kStagingBytes);
  BufferPtr buffer = new_private(bytes, label);
  const size_t chunk = kStagingBytes / granule * granule;
  Uploads uploads(label, counters_);
  size_t turn = 0;
  for (size_t offset = 0; offset < bytes; offset += chunk, turn ^= 1) {
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    const size_t n = std::min(chunk, bytes - offset);
    uploads.finish(turn);
    MTL::Buffer* from = staging(turn);
    fill(offset, {static_cast<std::byte*>(from->contents()), n});
    MTL::CommandBuffer* commands = queue_->commandBuffer();
    MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
    blit->copyFromBuffer(from, 0, buffer.get(), offset, whole_words(n));
    blit->endEncoding();
    uploads.start(turn, commands);
  }
  for (const size_t last : {0, 1}) uploads.finish(last);
  return buffer;
}

void Memory::run(const std::function<void(MTL::BlitCommandEncoder*)>& encode) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  MTL::CommandBuffer* commands = queue_->commandBuffer();
  MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
  encode(blit);
  blit->endEncoding();
  commit(commands, counters_);
  wait_for(commands, counters_);
  if (NS::Error* error = commands->error())
    throw_error(ErrorKind::device, "gpu: a copy failed: {}", error->localizedDescription()->utf8String());
}

void Memory::write(BufferView to, std::span<const std::byte> from) {
  if (from.size() > to.bytes)
    throw_error(ErrorKind::internal, "gpu: {} bytes written to {} bytes", from.size(), to.bytes);
  for (size_t offset = 0; offset < from.size(); offset += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, from.size() - offset);
    MTL::Buffer* stage = staging(0);
    auto* host = static_cast<std::byte*>(stage->contents());
    std::memcpy(host, from.data() + offset, n);
    std::memset(host + n, 0, whole_words(n) - n);
    run([&](MTL::BlitCommandEncoder* blit) {
      blit->copyFromBuffer(stage, 0, to.buffer, to.offset + offset, whole_words(n));
    });
  }
}

void Memory::read(BufferView from, std::span<std::byte> to) {
  if (to.size() > from.bytes)
    throw_error(ErrorKind::internal, "gpu: {} bytes read from {} bytes", to.size(), from.bytes);
  for (size_t offset = 0; offset < to.size(); offset += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, to.size() - offset);
    MTL::Buffer* stage = staging(0);
    run([&](MTL::BlitCommandEncoder* blit) {
      blit->copyFromBuffer(from.buffer, from.offset + offset, stage, 0, whole_words(n));
    });
    std::memcpy(to.data() + offset, stage->contents(), n);
  }
}

void Memory::copy(BufferView from, BufferView to) {
  run([&](MTL::BlitCommandEncoder* blit) {
    blit->copyFromBuffer(from.buffer, from.offset, to.buffer, to.offset, from.bytes);
  });
}

BufferPtr Memory::new_zeros(size_t bytes, const std::string& label) {
  BufferPtr buffer = new_private(bytes, label);
  run([&](MTL::BlitCommandEncoder* blit) { blit->fillBuffer(buffer.get(), NS::Range(0, buffer->length()), 0); });
  return buffer;
}

}  // namespace ingot::metal
