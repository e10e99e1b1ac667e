#pragma once

#include <functional>
#include <memory>

#include "MTLCommand.hpp"

namespace MTL {

Device* CreateSystemDefaultDevice();
NS::Array* CopyAllDevices();

using NewLibraryCompletionHandlerFunction = std::function<void(Library*, NS::Error*)>;
using NewComputePipelineStateCompletionHandlerFunction = std::function<void(ComputePipelineState*, NS::Error*)>;

class Architecture : public NS::Copying<Architecture> {
 public:
  NS::String* name() const { return name_.get(); }

 private:
  friend class NS::Copying<Architecture>;
  friend struct softmetal::Access;
  Architecture* make_copy() const;
  NS::SharedPtr<NS::String> name_;
};

class Device : public NS::Referencing<Device> {
 public:
  NS::String* name() const;
  Architecture* architecture() const;
  uint64_t registryID() const { return 1; }
  bool hasUnifiedMemory() const { return true; }
  bool isLowPower() const { return false; }
  bool isHeadless() const { return true; }
  bool isRemovable() const { return false; }
  uint64_t recommendedMaxWorkingSetSize() const;
  NS::UInteger currentAllocatedSize() const;
  NS::UInteger maxBufferLength() const;
  NS::UInteger maxThreadgroupMemoryLength() const;
  Size maxThreadsPerThreadgroup() const;
  bool supportsFamily(GPUFamily family);

  CommandQueue* newCommandQueue();
  CommandQueue* newCommandQueue(NS::UInteger max_command_buffers);
  Buffer* newBuffer(NS::UInteger length, ResourceOptions options);
  Buffer* newBuffer(const void* pointer, NS::UInteger length, ResourceOptions options);
  SizeAndAlign heapBufferSizeAndAlign(NS::UInteger length, ResourceOptions options);
  Heap* newHeap(const HeapDescriptor* descriptor);
  Fence* newFence();
  Event* newEvent();
  SharedEvent* newSharedEvent();
  ResidencySet* newResidencySet(const ResidencySetDescriptor* descriptor, NS::Error** error);

  Library* newDefaultLibrary() { return nullptr; }
  Library* newLibrary(const NS::String* path, NS::Error** error);
  Library* newLibrary(const NS::URL* url, NS::Error** error);
  Library* newLibrary(const NS::String* source, const CompileOptions* options, NS::Error** error);
  ComputePipelineState* newComputePipelineState(const Function* function, NS::Error** error);
  ComputePipelineState* newComputePipelineState(const ComputePipelineDescriptor* descriptor, PipelineOption options,
                                                const AutoreleasedComputePipelineReflection* reflection,
                                                NS::Error** error);
  void sampleTimestamps(Timestamp* cpu, Timestamp* gpu);

 private:
  friend struct softmetal::Access;
  Device();
  ~Device() override;
  std::shared_ptr<softmetal::DeviceState> state_;
};

enum CaptureDestination : NS::Integer {
  CaptureDestinationDeveloperTools = 1,
  CaptureDestinationGPUTraceDocument = 2,
};

class CaptureDescriptor : public NS::Copying<CaptureDescriptor> {
 public:
  static CaptureDescriptor* alloc() { return new CaptureDescriptor; }
  CaptureDescriptor* init() { return this; }
  void setCaptureObject(NS::Object* object) { object_ = object; }
  void setDestination(CaptureDestination destination) { destination_ = destination; }
  void setOutputURL(const NS::URL* url);

 private:
  friend class NS::Copying<CaptureDescriptor>;
  CaptureDescriptor* make_copy() const;
  NS::Object* object_ = nullptr;
  CaptureDestination destination_ = CaptureDestinationDeveloperTools;
  NS::SharedPtr<NS::URL> url_;
};

// There is no capture here: startCapture fails with an error, as on a Mac where capture is not enabled.
class CaptureManager : public NS::Referencing<CaptureManager> {
 public:
  static CaptureManager* sharedCaptureManager();
  bool supportsDestination(CaptureDestination) { return false; }
  bool startCapture(const CaptureDescriptor* descriptor, NS::Error** error);
  void stopCapture() {}
  bool isCapturing() const { return false; }
};

}  // namespace MTL
