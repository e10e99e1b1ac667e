#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "MTLLibrary.hpp"

namespace softmetal {
struct CommandList;
class Stream;
struct BufferState;   // a command buffer's progress, shared with the stream
struct ComputeState;  // what an encoder has bound
}  // namespace softmetal

namespace MTL {

using HandlerFunction = std::function<void(CommandBuffer*)>;

class CommandEncoder : public NS::Referencing<CommandEncoder> {
 public:
  Device* device() const;
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  void endEncoding();
  void insertDebugSignpost(const NS::String*) {}
  void pushDebugGroup(const NS::String*) {}
  void popDebugGroup() {}

 protected:
  friend struct softmetal::Access;
  CommandEncoder();
  ~CommandEncoder() override;
  softmetal::CommandList& list(const char* call) const;
  CommandBuffer* command_buffer_ = nullptr;
  NS::SharedPtr<NS::String> label_;
  bool ended_ = false;
};

class ComputeCommandEncoder : public NS::Referencing<ComputeCommandEncoder, CommandEncoder> {
 public:
  DispatchType dispatchType() const { return type_; }
  void setComputePipelineState(const ComputePipelineState* state);
  void setBuffer(const Buffer* buffer, NS::UInteger offset, NS::UInteger index);
  void setBufferOffset(NS::UInteger offset, NS::UInteger index);
  void setBuffers(const Buffer* const buffers[], const NS::UInteger offsets[], NS::Range range);
  void setBytes(const void* bytes, NS::UInteger length, NS::UInteger index);
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index);
  void dispatchThreadgroups(Size groups, Size threads_per_group);
  void dispatchThreadgroups(const Buffer* indirect, NS::UInteger offset, Size threads_per_group);
  void dispatchThreads(Size threads, Size threads_per_group);
  void memoryBarrier(BarrierScope scope);
  void memoryBarrier(const Resource* const resources[], NS::UInteger count);
  void updateFence(const Fence* fence);
  void waitForFence(const Fence* fence);
  void useResource(const Resource* resource, ResourceUsage usage);
  void useResources(const Resource* const resources[], NS::UInteger count, ResourceUsage usage);
  void useHeap(const Heap*) {}
  void useHeaps(const Heap* const*, NS::UInteger) {}

 private:
  friend struct softmetal::Access;
  ComputeCommandEncoder();
  ~ComputeCommandEncoder() override;
  void dispatch(const char* call, bool by_threads, Size grid, Size group, const Buffer* indirect, NS::UInteger offset);
  DispatchType type_ = DispatchTypeSerial;
  std::unique_ptr<softmetal::ComputeState> state_;
};

class BlitCommandEncoder : public NS::Referencing<BlitCommandEncoder, CommandEncoder> {
 public:
  void copyFromBuffer(const Buffer* source, NS::UInteger source_offset, const Buffer* destination,
                      NS::UInteger destination_offset, NS::UInteger size);
  void fillBuffer(const Buffer* buffer, NS::Range range, uint8_t value);
  void synchronizeResource(const Resource* resource);
  void updateFence(const Fence* fence);
  void waitForFence(const Fence* fence);

 private:
  friend struct softmetal::Access;
};

class CommandBufferDescriptor : public NS::Copying<CommandBufferDescriptor> {
 public:
  static CommandBufferDescriptor* alloc() { return new CommandBufferDescriptor; }
  CommandBufferDescriptor* init() { return this; }
  bool retainedReferences() const { return retained_; }
  void setRetainedReferences(bool retained) { retained_ = retained; }

 private:
  friend class NS::Copying<CommandBufferDescriptor>;
  CommandBufferDescriptor* make_copy() const;
  bool retained_ = true;
};

class CommandBuffer : public NS::Referencing<CommandBuffer> {
 public:
  Device* device() const;
  CommandQueue* commandQueue() const { return queue_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  bool retainedReferences() const { return retained_; }

  ComputeCommandEncoder* computeCommandEncoder();
  ComputeCommandEncoder* computeCommandEncoder(DispatchType type);
  BlitCommandEncoder* blitCommandEncoder();
  void encodeSignalEvent(const Event* event, uint64_t value);
  void encodeWait(const Event* event, uint64_t value);
  void useResidencySet(const ResidencySet*) {}
  void useResidencySets(const ResidencySet* const*, NS::UInteger) {}
  void pushDebugGroup(const NS::String*) {}
  void popDebugGroup() {}

  void addScheduledHandler(const HandlerFunction& function);
  void addCompletedHandler(const HandlerFunction& function);
  void enqueue();
  void commit();
  void waitUntilScheduled();
  void waitUntilCompleted();
  CommandBufferStatus status() const;
  NS::Error* error() const;
  CFTimeInterval GPUStartTime() const;
  CFTimeInterval GPUEndTime() const;
  CFTimeInterval kernelStartTime() const { return GPUStartTime(); }
  CFTimeInterval kernelEndTime() const { return GPUEndTime(); }

 private:
  friend struct softmetal::Access;
  CommandBuffer();
  ~CommandBuffer() override;
  NS::SharedPtr<CommandQueue> queue_;
  NS::SharedPtr<NS::String> label_;
  bool retained_ = true;
  bool encoding_ = false;  // an encoder is open
  std::unique_ptr<softmetal::CommandList> list_;
  std::shared_ptr<softmetal::BufferState> state_;
};

class CommandQueue : public NS::Referencing<CommandQueue> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  CommandBuffer* commandBuffer();
  CommandBuffer* commandBuffer(const CommandBufferDescriptor* descriptor);
  CommandBuffer* commandBufferWithUnretainedReferences();
  void addResidencySet(const ResidencySet*) {}
  void addResidencySets(const ResidencySet* const*, NS::UInteger) {}
  void removeResidencySet(const ResidencySet*) {}
  void removeResidencySets(const ResidencySet* const*, NS::UInteger) {}
  void insertDebugCaptureBoundary() {}

 private:
  friend struct softmetal::Access;
  CommandQueue();
  ~CommandQueue() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  std::unique_ptr<softmetal::Stream> stream_;
};

}  // namespace MTL
