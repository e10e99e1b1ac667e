#include <unistd.h>

#include <chrono>
#include <cstring>

#include "mtl/state.h"
#include "softmetal/cuda.h"

using namespace softmetal;

namespace MTL {
namespace {

void fail(NS::Error** error, const char* domain, NS::Integer code, const std::string& message) {
  if (error) *error = NS::Error::make(domain, code, message);
}

}  // namespace

Device* CreateSystemDefaultDevice() {
  auto* device = Access::make<Device>();
  auto state = std::make_shared<DeviceState>();
  state->options = options();
  state->executor = state->options.agx.empty() ? make_cpu_executor(state->options) : make_agx_executor(state->options);
  Access::state_pointer(device) = std::move(state);
  set_auditing(Access::state(device).options.mode != Mode::fast);
  return device;
}

}  // namespace MTL

MTL::Device* softmetal::create_cuda_device(std::string* reason) {
  auto state = std::make_shared<DeviceState>();
  state->options = options();
  state->options.mode = Mode::fast;
  try {
    state->executor = make_cuda_executor(state->options);
  } catch (const std::exception& e) {
    if (reason) *reason = e.what();
    return nullptr;
  }
  auto* device = Access::make<MTL::Device>();
  Access::state_pointer(device) = std::move(state);
  set_auditing(true);
  return device;
}

namespace MTL {

NS::Array* CopyAllDevices() {
  auto device = NS::TransferPtr(CreateSystemDefaultDevice());
  const NS::Object* objects[] = {device.get()};
  return NS::Array::alloc()->init(objects, 1);
}

Architecture* Architecture::make_copy() const {
  auto* a = new Architecture;
  a->name_ = name_;
  return a;
}

Device::Device() = default;
Device::~Device() = default;

NS::String* Device::name() const {
  return NS::String::string(state_->executor->name().c_str(), NS::UTF8StringEncoding);
}
Architecture* Device::architecture() const {
  auto* a = Access::make<Architecture>();
  Access::name(a) = NS::TransferPtr(NS::String::alloc()->init("softmetal", NS::UTF8StringEncoding));
  return a->autorelease();
}
uint64_t Device::recommendedMaxWorkingSetSize() const {
  if (state_->options.working_set_bytes) return state_->options.working_set_bytes;
  if (const uint64_t bytes = state_->executor->memory_bytes()) return bytes;
  const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  return memory / 4 * 3;
}
NS::UInteger Device::currentAllocatedSize() const { return state_->allocated; }
NS::UInteger Device::maxBufferLength() const { return recommendedMaxWorkingSetSize() / 4 * 3; }
NS::UInteger Device::maxThreadgroupMemoryLength() const { return state_->executor->max_threadgroup_bytes(); }
Size Device::maxThreadsPerThreadgroup() const {
  return Size(kMaxThreadsPerGroup, kMaxThreadsPerGroup, kMaxThreadsPerGroup);
}

bool Device::supportsFamily(GPUFamily family) {
  const int newest = state_->options.gpu_family;
  if (family >= GPUFamilyApple1 && family <= GPUFamilyApple10 + 89) return family <= newest;
  if (family == GPUFamilyMac2 || (family >= GPUFamilyCommon1 && family <= GPUFamilyCommon3)) return true;
  if (family == GPUFamilyMetal3) return newest >= GPUFamilyApple7;
  return false;
}

CommandQueue* Device::newCommandQueue() {
  auto* queue = Access::make<CommandQueue>();
  Access::device(queue) = NS::RetainPtr(this);
  Access::stream(queue) = state_->executor->new_stream();
  return queue;
}
CommandQueue* Device::newCommandQueue(NS::UInteger) { return newCommandQueue(); }

Buffer* Device::newBuffer(NS::UInteger length, ResourceOptions options) {
  audit::allocation("newBuffer()");
  return Access::new_buffer(this, length, options);
}
Buffer* Device::newBuffer(const void* pointer, NS::UInteger length, ResourceOptions options) {
  audit::allocation("newBuffer()");
  if (options & ResourceStorageModePrivate)
    violate("newBuffer: a private buffer cannot be made from bytes of the host");
  Buffer* buffer = Access::new_buffer(this, length, options);
  if (!buffer) return nullptr;
  std::memcpy(Access::memory(buffer)->host(), pointer, length);
  return buffer;
}
SizeAndAlign Device::heapBufferSizeAndAlign(NS::UInteger length, ResourceOptions) {
  return {(length + 255) / 256 * 256, 256};
}

Heap* Device::newHeap(const HeapDescriptor* descriptor) {
  audit::allocation("newHeap()");
  auto* heap = Access::make<Heap>();
  Access::set_up(heap, this, descriptor);
  return heap;
}
Fence* Device::newFence() {
  auto* fence = Access::make<Fence>();
  Access::device(fence) = NS::RetainPtr(this);
  return fence;
}
Event* Device::newEvent() {
  auto* event = Access::make<Event>();
  Access::device(event) = NS::RetainPtr(this);
  return event;
}
SharedEvent* Device::newSharedEvent() {
  auto* event = Access::make<SharedEvent>();
  Access::device(static_cast<Event*>(event)) = NS::RetainPtr(this);
  return event;
}
ResidencySet* Device::newResidencySet(const ResidencySetDescriptor* descriptor, NS::Error**) {
  auto* set = Access::make<ResidencySet>();
  Access::device(set) = NS::RetainPtr(this);
  Access::label(set) = owned(descriptor->label());
  return set;
}

Library* Device::newLibrary(const NS::String* path, NS::Error** error) {
  audit::compilation("newLibrary()");
  try {
    auto program = state_->executor->load(text(path));
    auto* library = Access::make<Library>();
    Access::device(library) = NS::RetainPtr(this);
    Access::program(library) = std::move(program);
    return library;
  } catch (const CompileError& e) {
    fail(error, "MTLLibraryErrorDomain", LibraryErrorFileNotFound, e.what());
    return nullptr;
  }
}
Library* Device::newLibrary(const NS::URL* url, NS::Error** error) {
  return newLibrary(NS::String::string(url->fileSystemRepresentation(), NS::UTF8StringEncoding), error);
}
Library* Device::newLibrary(const NS::String* source, const CompileOptions* options, NS::Error** error) {
  audit::compilation("newLibrary()");
  std::vector<std::pair<std::string, std::string>> macros;
  if (options && options->preprocessorMacros()) {
    for (auto& [key, value] : options->preprocessorMacros()->entries()) {
      macros.emplace_back(text(key->description()), text(value->description()));
    }
  }
  try {
    auto program = state_->executor->compile(text(source), macros);
    auto* library = Access::make<Library>();
    Access::device(library) = NS::RetainPtr(this);
    Access::program(library) = std::move(program);
    return library;
  } catch (const CompileError& e) {
    fail(error, "MTLLibraryErrorDomain", LibraryErrorCompileFailure, e.what());
    return nullptr;
  }
}

ComputePipelineState* Device::newComputePipelineState(const Function* function, NS::Error** error) {
  auto descriptor = NS::TransferPtr(ComputePipelineDescriptor::alloc()->init());
  descriptor->setComputeFunction(function);
  return newComputePipelineState(descriptor.get(), PipelineOptionNone, nullptr, error);
}
ComputePipelineState* Device::newComputePipelineState(const ComputePipelineDescriptor* descriptor, PipelineOption,
                                                      const AutoreleasedComputePipelineReflection*, NS::Error** error) {
  audit::compilation("newComputePipelineState()");
  const Function* function = descriptor->computeFunction();
  std::vector<ConstantValue> constants;
  for (auto& [name, value] : Access::constants(function)) constants.push_back({name, value});
  try {
    auto kernel = state_->executor->build(*Access::program(function), text(function->name()), constants);
    size_t threads = kernel->max_threads;
    if (NS::UInteger limit = descriptor->maxTotalThreadsPerThreadgroup(); limit && limit < threads) threads = limit;
    auto* pipeline = Access::make<ComputePipelineState>();
    Access::device(pipeline) = NS::RetainPtr(this);
    Access::label(pipeline) = owned(descriptor->label());
    Access::set_up(pipeline, std::move(kernel), threads, descriptor->threadGroupSizeIsMultipleOfThreadExecutionWidth());
    return pipeline;
  } catch (const CompileError& e) {
    fail(error, "MTLLibraryErrorDomain", LibraryErrorCompileFailure, e.what());
    return nullptr;
  }
}

void Device::sampleTimestamps(Timestamp* cpu, Timestamp* gpu) {
  *cpu = *gpu = static_cast<Timestamp>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

CaptureDescriptor* CaptureDescriptor::make_copy() const {
  auto* d = alloc();
  d->object_ = object_;
  d->destination_ = destination_;
  d->url_ = url_;
  return d;
}
void CaptureDescriptor::setOutputURL(const NS::URL* url) { url_ = NS::TransferPtr(url->copy()); }

CaptureManager* CaptureManager::sharedCaptureManager() {
  static CaptureManager* manager = new CaptureManager;
  return manager;
}
bool CaptureManager::startCapture(const CaptureDescriptor*, NS::Error** error) {
  fail(error, "MTLCaptureError", 1, "the software Metal device has no GPU capture");
  return false;
}

}  // namespace MTL
