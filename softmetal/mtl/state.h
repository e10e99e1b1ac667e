// What the classes of MTL:: share behind their headers.
#pragma once

#include <Metal/Metal.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runtime/executor.h"
#include "softmetal/softmetal.h"

namespace softmetal {

struct DeviceState {
  Options options;
  std::shared_ptr<Executor> executor;
  std::atomic<uint64_t> allocated{0};
};

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t value = 0;

  void signal(uint64_t v) {
    {
      std::lock_guard lock(mutex);
      if (v > value) value = v;
    }
    changed.notify_all();
  }
};

struct BufferState {
  std::mutex mutex;
  std::condition_variable changed;
  MTL::CommandBufferStatus status = MTL::CommandBufferStatusNotEnqueued;
  bool finished = false;  // its handlers have run
  Completion completion;
  NS::SharedPtr<NS::Error> error;
  std::vector<MTL::HandlerFunction> scheduled, completed;
};

struct ComputeState {
  const MTL::ComputePipelineState* pipeline = nullptr;
  struct Slot {
    const MTL::Buffer* buffer = nullptr;
    size_t offset = 0, byte_count = 0;
    bool is_bytes = false;
  };
  std::array<Slot, kBufferSlots> slots;
  std::array<uint32_t, kThreadgroupSlots> threadgroup_bytes{};
  std::vector<Memory*> resources;  // useResource
  bool resources_changed = false;
  uint32_t first_resource = 0;
};

struct Access {
  template <class T>
  static T* make() {
    return new T;
  }
  static DeviceState& state(const MTL::Device* d) { return *d->state_; }
  static std::shared_ptr<DeviceState>& state_pointer(MTL::Device* d) { return d->state_; }
  template <class T>
  static NS::SharedPtr<MTL::Device>& device(T* t) {
    return t->device_;
  }
  template <class T>
  static NS::SharedPtr<NS::String>& label(T* t) {
    return t->label_;
  }
  static const std::shared_ptr<Memory>& memory(const MTL::Resource* r) { return r->memory_; }
  static MTL::Buffer* new_buffer(MTL::Device* device, size_t length, MTL::ResourceOptions options);
  static void set_heap(MTL::Buffer* b, MTL::Heap* heap, size_t offset) {
    b->heap_ = heap;
    b->heap_offset_ = offset;
  }
  static void set_up(MTL::Heap* heap, MTL::Device* device, const MTL::HeapDescriptor* descriptor);
  static std::shared_ptr<EventState>& event(MTL::Event* e) { return e->state_; }
  static const std::shared_ptr<EventState>& event(const MTL::Event* e) { return e->state_; }
  static std::shared_ptr<const Program>& program(MTL::Library* l) { return l->program_; }
  static std::shared_ptr<const Program>& program(MTL::Function* f) { return f->program_; }
  static const std::shared_ptr<const Program>& program(const MTL::Function* f) { return f->program_; }
  static NS::SharedPtr<NS::String>& name(MTL::Function* f) { return f->name_; }
  static NS::SharedPtr<NS::String>& name(MTL::Architecture* a) { return a->name_; }
  static std::vector<std::pair<std::string, std::string>>& constants(MTL::Function* f) { return f->constants_; }
  static const std::vector<std::pair<std::string, std::string>>& constants(const MTL::Function* f) {
    return f->constants_;
  }
  // The values as C++ text, by the names that the program gives the constants. Throws CompileError.
  static std::vector<std::pair<std::string, std::string>> resolve(const MTL::FunctionConstantValues* values,
                                                                  const Program& program);
  static const std::shared_ptr<Kernel>& kernel(const MTL::ComputePipelineState* s) { return s->kernel_; }
  static void set_up(MTL::ComputePipelineState* s, std::shared_ptr<Kernel> kernel, size_t max_threads, bool multiple) {
    s->kernel_ = std::move(kernel);
    s->max_threads_ = max_threads;
    s->multiple_of_width_ = multiple;
  }
  static bool multiple_of_width(const MTL::ComputePipelineState* s) { return s->multiple_of_width_; }
  static std::unique_ptr<Stream>& stream(MTL::CommandQueue* q) { return q->stream_; }
  static MTL::CommandBuffer* new_command_buffer(MTL::CommandQueue* queue, bool retained);
  static CommandList& list(MTL::CommandBuffer* b) { return *b->list_; }
  static bool has_list(MTL::CommandBuffer* b) { return b->list_ != nullptr; }
  static bool retained(MTL::CommandBuffer* b) { return b->retained_; }
  static void end_encoder(MTL::CommandBuffer* b) { b->encoding_ = false; }
  template <class Encoder>
  static void attach(Encoder* e, MTL::CommandBuffer* b) {
    e->command_buffer_ = b;
  }
  static MTL::CommandBuffer* command_buffer(MTL::ComputeCommandEncoder* e) { return e->command_buffer_; }
  template <class Encoder>
  static CommandList& commands(Encoder* e, const char* call) {
    return e->list(call);
  }
  static void set_type(MTL::ComputeCommandEncoder* e, MTL::DispatchType type) { e->type_ = type; }
};

inline std::string text(const NS::String* s) { return s ? s->utf8String() : ""; }
inline NS::SharedPtr<NS::String> owned(const NS::String* s) {
  return s ? NS::TransferPtr(s->copy()) : NS::SharedPtr<NS::String>();
}
// " 'label'", or nothing.
std::string quoted_label(const MTL::Resource* resource);

// --- rules of the host (audit.cc)
// -----------------------------------------------------------------------------------------
[[noreturn]] void violate(const std::string& message);
void set_auditing(bool on);

namespace audit {
void command_buffer();
void commit();
void wait(const char* call);      // blocks for the whole of a command buffer
void poll(const char* call);      // forbidden in a step
void readback(const char* call);  // forbidden while encoding
void allocation(const char* call);
void compilation(const char* call);
void dispatch();
void barrier();
void copy();
}  // namespace audit

}  // namespace softmetal
