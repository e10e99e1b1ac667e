#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/counters.h"
#include "backend/metal/host_hooks.h"
#include "backend/metal/memory.h"
#include "backend/metal/pipelines.h"
#include "backend/metal/profile.h"

namespace ingot::metal {

// Encodes one step's dispatches into one concurrent compute encoder. Dispatches may overlap on the GPU unless what they
// declare about their arguments says otherwise: then a barrier goes between them.
//
//   encoder.use("norm_f16", {Constant::b(kNormBias, false)});
//   encoder.read(0, in);            // activations, inputs, cache: hazards are tracked by byte range
//   encoder.weight(1, gamma);       // never written after load: no tracking
//   encoder.write(2, out);
//   encoder.value(3, params);       // a plain struct, up to 4 KB
//   encoder.dispatch({rows, 1, 1}, {256, 1, 1});
//
// All arguments of a dispatch are set between use() and dispatch(); nothing carries over.
//
// In a rehearsal (Backend::rehearse) the same calls encode nothing: use() compiles a pipeline that is missing, and a
// threadgroup of more threads than the pipeline has registers for is refused then and there. In a step a missing
// pipeline is compiled too, and counted: the contract's tests see it.
class Encoder {
 public:
  Encoder(PipelineCache& pipelines, DeviceCounters& counters) : pipelines_(pipelines), counters_(counters) {
    accesses_.reserve(64);
  }

  void begin(MTL::CommandBuffer* commands, MTL::Fence* fence);
  void end();
  void begin_rehearsal();
  void end_rehearsal();
  bool rehearsing() const { return rehearsing_; }

  // From now on every dispatch gets a command buffer of its own, from this queue; see Profile.
  void profile(MTL::CommandQueue* queue) { profile_queue_ = queue; }
  // What the dispatches to come are for, for the profile: "qkv". Empty: the kernel's name says it.
  void role(const char* role) { role_ = role; }
  std::vector<TimedDispatch> take_timed() { return std::exchange(timed_, {}); }

  // Names end in the element type they were made for: `_f16` or `_bf16` for activations.
  void use(std::string_view kernel, std::span<const Constant> constants);
  void use(std::string_view kernel, std::initializer_list<Constant> constants = {}) {
    use(kernel, std::span(constants.begin(), constants.size()));
  }
  void read(uint32_t index, BufferView view) { argument(index, view, Access::Kind::read); }
  void write(uint32_t index, BufferView view) { argument(index, view, Access::Kind::write); }
  void update(uint32_t index, BufferView view) { argument(index, view, Access::Kind::write); }  // reads and writes
  // Reads and writes from byte `from` of the view on; what lies before is left alone.
  void update_part(uint32_t index, BufferView view, size_t from);
  void weight(uint32_t index, BufferView view);
  void bytes(uint32_t index, const void* data, size_t size);
  template <typename T>
  void value(uint32_t index, const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(index, &v, sizeof(T));
  }
  void threadgroup_memory(uint32_t index, size_t size);
  // Grid in threadgroups, then threads a threadgroup.
  void dispatch(MTL::Size groups, MTL::Size threads);
  // Behind everything that was encoded so far and before all that follows: what is not a dispatch.
  void between(const std::function<void(MTL::CommandBuffer*)>& encode);
  // A product by the device's own library instead of a kernel.
  void gemm(const host::GemmProduct& product, BufferView x, BufferView weights, BufferView out);

 private:
  struct Access {
    enum class Kind : uint8_t { read, write };
    const MTL::Buffer* buffer;
    size_t begin, end;
    Kind kind;
  };
  void argument(uint32_t index, BufferView view, Access::Kind kind);
  bool conflicts(const Access& access) const;
  void begin_profiled();
  void end_profiled(const std::string& name);
  void place_barrier();

  PipelineCache& pipelines_;
  DeviceCounters& counters_;
  MTL::CommandBuffer* buffer_ = nullptr;
  MTL::ComputeCommandEncoder* commands_ = nullptr;
  MTL::Fence* fence_ = nullptr;
  bool rehearsing_ = false;
  const Pipeline* current_ = nullptr;
  size_t threadgroup_bytes_ = 0;  // of the dispatch being built
  std::vector<Access> accesses_;  // since the last barrier; those of the dispatch being built are at the end
  size_t pending_ = 0;            // how many of them belong to the dispatch being built

  MTL::CommandQueue* profile_queue_ = nullptr;
  const char* role_ = "";
  NS::SharedPtr<MTL::CommandBuffer> profiled_;  // of the dispatch being built
  uint64_t profiled_bytes_ = 0;                 // of its weights
  std::vector<TimedDispatch> timed_;
};

}  // namespace ingot::metal
