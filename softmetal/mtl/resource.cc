#include <algorithm>
#include <cstring>

#include "mtl/state.h"

namespace softmetal {

std::string quoted_label(const MTL::Resource* resource) {
  const NS::String* label = resource->label();
  return label ? " '" + text(label) + "'" : "";
}

MTL::Buffer* Access::new_buffer(MTL::Device* device, size_t length, MTL::ResourceOptions options) {
  if (options & MTL::ResourceStorageModeManaged) violate("newBuffer: managed storage does not exist on Apple silicon");
  if (length == 0) violate("newBuffer: a buffer of 0 bytes");
  if (length > device->maxBufferLength()) {
    violate("newBuffer: " + std::to_string(length) + " bytes, the limit is " +
            std::to_string(device->maxBufferLength()));
  }
  DeviceState& state = *device->state_;
  const bool is_private = options & MTL::ResourceStorageModePrivate;
  std::shared_ptr<Memory> memory;
  try {
    memory = state.executor->allocate(length, is_private ? Storage::private_ : Storage::shared,
                                      !(options & MTL::ResourceHazardTrackingModeUntracked));
  } catch (const OutOfMemory&) {
    return nullptr;
  }
  auto* buffer = new MTL::Buffer;
  buffer->device_ = NS::RetainPtr(device);
  buffer->options_ = options;
  buffer->allocated_ = (length + 16383) / 16384 * 16384;
  buffer->memory_ = std::move(memory);
  state.allocated += buffer->allocated_;
  return buffer;
}

void Access::set_up(MTL::Heap* heap, MTL::Device* device, const MTL::HeapDescriptor* descriptor) {
  heap->device_ = NS::RetainPtr(device);
  heap->size_ = descriptor->size();
  heap->storage_ = descriptor->storageMode();
  heap->hazards_ = descriptor->hazardTrackingMode();
  heap->allocated_ = descriptor->size();
}

}  // namespace softmetal

using namespace softmetal;

namespace MTL {

Resource::Resource() = default;
Resource::~Resource() {
  if (device_ && memory_ && !heap_) Access::state(device_.get()).allocated -= allocated_;
  if (heap_) heap_->release();
}
void Resource::setLabel(const NS::String* label) {
  label_ = owned(label);
  memory_->label = text(label);
}
StorageMode Resource::storageMode() const {
  return memory_->storage == Storage::private_ ? StorageModePrivate : StorageModeShared;
}
HazardTrackingMode Resource::hazardTrackingMode() const {
  return memory_->tracked ? HazardTrackingModeTracked : HazardTrackingModeUntracked;
}

void* Buffer::contents() {
  audit::readback("contents()");
  void* p = memory_->host();
  if (!p && Access::state(device()).options.mode == Mode::strict) {
    violate("contents() of the private buffer" + quoted_label(this));
  }
  return p;
}
void Buffer::didModifyRange(NS::Range) {
  audit::poll("didModifyRange()");
  violate("didModifyRange() is for managed buffers, which do not exist on Apple silicon");
}
NS::UInteger Buffer::length() const { return memory_->length; }
GPUAddress Buffer::gpuAddress() const { return memory_->device_address(); }

HeapDescriptor* HeapDescriptor::make_copy() const {
  auto* d = alloc();
  d->size_ = size_;
  d->storage_ = storage_;
  d->hazards_ = hazards_;
  return d;
}

Heap::Heap() = default;
Heap::~Heap() = default;
void Heap::setLabel(const NS::String* label) { label_ = owned(label); }
NS::UInteger Heap::maxAvailableSize(NS::UInteger alignment) {
  const NS::UInteger used = (used_ + alignment - 1) / alignment * alignment;
  return used < size_ ? size_ - used : 0;
}
Buffer* Heap::newBuffer(NS::UInteger length, ResourceOptions options) {
  audit::allocation("newBuffer()");
  const bool is_private = options & ResourceStorageModePrivate;
  if (is_private != (storage_ == StorageModePrivate)) violate("newBuffer: the storage mode is not that of the heap");
  const SizeAndAlign need = device_->heapBufferSizeAndAlign(length, options);
  if (maxAvailableSize(need.align) < need.size) return nullptr;
  // Buffers of a heap are untracked unless the heap says otherwise.
  if (hazards_ != HazardTrackingModeTracked) options |= ResourceHazardTrackingModeUntracked;
  Buffer* buffer = Access::new_buffer(device_.get(), length, options);
  if (!buffer) return nullptr;
  Access::state(device_.get()).allocated -= buffer->allocatedSize();
  const NS::UInteger offset = (used_ + need.align - 1) / need.align * need.align;
  Access::set_heap(buffer, this->retain(), offset);
  used_ = offset + need.size;
  return buffer;
}

Fence::Fence() = default;
Fence::~Fence() = default;
void Fence::setLabel(const NS::String* label) { label_ = owned(label); }

Event::Event() : state_(std::make_shared<EventState>()) {}
Event::~Event() = default;
void Event::setLabel(const NS::String* label) { label_ = owned(label); }

uint64_t SharedEvent::signaledValue() const {
  audit::poll("SharedEvent::signaledValue()");
  std::lock_guard lock(state_->mutex);
  return state_->value;
}
void SharedEvent::setSignaledValue(uint64_t value) { state_->signal(value); }
bool SharedEvent::waitUntilSignaledValue(uint64_t value, uint64_t milliseconds) {
  audit::wait("waitUntilSignaledValue()");
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::milliseconds(std::min<uint64_t>(milliseconds, 1u << 30)),
                                  [&] { return state_->value >= value; });
}

ResidencySetDescriptor* ResidencySetDescriptor::make_copy() const {
  auto* d = alloc();
  d->capacity_ = capacity_;
  d->label_ = label_;
  return d;
}
void ResidencySetDescriptor::setLabel(const NS::String* label) { label_ = owned(label); }

ResidencySet::ResidencySet() = default;
ResidencySet::~ResidencySet() { removeAllAllocations(); }
void ResidencySet::addAllocation(const Allocation* allocation) {
  auto* a = const_cast<Allocation*>(allocation);
  if (std::find(pending_.begin(), pending_.end(), a) != pending_.end()) return;
  a->retain();
  pending_.push_back(a);
}
void ResidencySet::addAllocations(const Allocation* const allocations[], NS::UInteger count) {
  for (NS::UInteger i = 0; i < count; ++i) addAllocation(allocations[i]);
}
void ResidencySet::removeAllocation(const Allocation* allocation) {
  auto found = std::find(pending_.begin(), pending_.end(), const_cast<Allocation*>(allocation));
  if (found == pending_.end()) return;
  (*found)->release();
  pending_.erase(found);
}
void ResidencySet::removeAllocations(const Allocation* const allocations[], NS::UInteger count) {
  for (NS::UInteger i = 0; i < count; ++i) removeAllocation(allocations[i]);
}
void ResidencySet::removeAllAllocations() {
  for (Allocation* a : pending_) a->release();
  pending_.clear();
}
bool ResidencySet::containsAllocation(const Allocation* allocation) {
  return std::find(pending_.begin(), pending_.end(), const_cast<Allocation*>(allocation)) != pending_.end();
}
NS::UInteger ResidencySet::allocationCount() const { return pending_.size(); }
uint64_t ResidencySet::allocatedSize() const {
  uint64_t bytes = 0;
  for (const Allocation* a : pending_) bytes += a->allocatedSize();
  return bytes;
}
void ResidencySet::commit() {}

}  // namespace MTL
