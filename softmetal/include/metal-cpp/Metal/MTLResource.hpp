#pragma once

#include <functional>
#include <memory>
#include <string>

#include "MTLTypes.hpp"

namespace softmetal {
class Memory;
struct DeviceState;
struct EventState;
struct Access;  // the implementation's way in
}  // namespace softmetal

namespace MTL {

class Allocation : public NS::Referencing<Allocation> {
 public:
  NS::UInteger allocatedSize() const { return allocated_; }

 protected:
  friend struct softmetal::Access;
  NS::UInteger allocated_ = 0;
};

class Resource : public NS::Referencing<Resource, Allocation> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  StorageMode storageMode() const;
  HazardTrackingMode hazardTrackingMode() const;
  CPUCacheMode cpuCacheMode() const { return static_cast<CPUCacheMode>(options_ & 15); }
  ResourceOptions resourceOptions() const { return options_; }
  Heap* heap() const { return heap_; }
  NS::UInteger heapOffset() const { return heap_offset_; }

 protected:
  friend struct softmetal::Access;
  Resource();
  ~Resource() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  ResourceOptions options_ = 0;
  Heap* heap_ = nullptr;
  NS::UInteger heap_offset_ = 0;
  std::shared_ptr<softmetal::Memory> memory_;
};

class Buffer : public NS::Referencing<Buffer, Resource> {
 public:
  void* contents();
  void didModifyRange(NS::Range range);
  NS::UInteger length() const;
  GPUAddress gpuAddress() const;

 private:
  friend struct softmetal::Access;
};

class HeapDescriptor : public NS::Copying<HeapDescriptor> {
 public:
  static HeapDescriptor* alloc() { return new HeapDescriptor; }
  HeapDescriptor* init() { return this; }
  NS::UInteger size() const { return size_; }
  void setSize(NS::UInteger size) { size_ = size; }
  StorageMode storageMode() const { return storage_; }
  void setStorageMode(StorageMode mode) { storage_ = mode; }
  HazardTrackingMode hazardTrackingMode() const { return hazards_; }
  void setHazardTrackingMode(HazardTrackingMode mode) { hazards_ = mode; }

 private:
  friend class NS::Copying<HeapDescriptor>;
  HeapDescriptor* make_copy() const;
  NS::UInteger size_ = 0;
  StorageMode storage_ = StorageModePrivate;
  HazardTrackingMode hazards_ = HazardTrackingModeDefault;
};

// Keeps account of its size; its buffers have storage of their own, so that an index past one never lands in the next.
class Heap : public NS::Referencing<Heap, Allocation> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  NS::UInteger size() const { return size_; }
  NS::UInteger usedSize() const { return used_; }
  NS::UInteger currentAllocatedSize() const { return size_; }
  NS::UInteger maxAvailableSize(NS::UInteger alignment);
  StorageMode storageMode() const { return storage_; }
  HazardTrackingMode hazardTrackingMode() const { return hazards_; }
  Buffer* newBuffer(NS::UInteger length, ResourceOptions options);

 private:
  friend struct softmetal::Access;
  Heap();
  ~Heap() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  NS::UInteger size_ = 0, used_ = 0;
  StorageMode storage_ = StorageModePrivate;
  HazardTrackingMode hazards_ = HazardTrackingModeDefault;
};

class Fence : public NS::Referencing<Fence> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);

 private:
  friend struct softmetal::Access;
  Fence();
  ~Fence() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
};

class Event : public NS::Referencing<Event> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);

 protected:
  friend struct softmetal::Access;
  Event();
  ~Event() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  std::shared_ptr<softmetal::EventState> state_;
};

class SharedEvent : public NS::Referencing<SharedEvent, Event> {
 public:
  uint64_t signaledValue() const;
  void setSignaledValue(uint64_t value);
  bool waitUntilSignaledValue(uint64_t value, uint64_t milliseconds);

 private:
  friend struct softmetal::Access;
};

class ResidencySetDescriptor : public NS::Copying<ResidencySetDescriptor> {
 public:
  static ResidencySetDescriptor* alloc() { return new ResidencySetDescriptor; }
  ResidencySetDescriptor* init() { return this; }
  NS::UInteger initialCapacity() const { return capacity_; }
  void setInitialCapacity(NS::UInteger capacity) { capacity_ = capacity; }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);

 private:
  friend class NS::Copying<ResidencySetDescriptor>;
  ResidencySetDescriptor* make_copy() const;
  NS::UInteger capacity_ = 0;
  NS::SharedPtr<NS::String> label_;
};

// Accounts for what it holds; nothing is ever paged out here.
class ResidencySet : public NS::Referencing<ResidencySet> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void addAllocation(const Allocation* allocation);
  void addAllocations(const Allocation* const allocations[], NS::UInteger count);
  void removeAllocation(const Allocation* allocation);
  void removeAllocations(const Allocation* const allocations[], NS::UInteger count);
  void removeAllAllocations();
  bool containsAllocation(const Allocation* allocation);
  NS::UInteger allocationCount() const;
  uint64_t allocatedSize() const;
  void commit();
  void requestResidency() {}
  void endResidency() {}

 private:
  friend struct softmetal::Access;
  ResidencySet();
  ~ResidencySet() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  std::vector<Allocation*> pending_, committed_;
};

}  // namespace MTL
