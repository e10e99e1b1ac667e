#pragma once

#include <Metal/Metal.hpp>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backend/counters.h"
#include "backend/metal/constant.h"

namespace ingot::metal {

// What a pipeline is known by: kernel name and constant values. (The device, and so its family, is one per cache.)
struct PipelineKey {
  static constexpr size_t kMaxConstants = 20;
  std::string_view kernel;
  std::array<Constant, kMaxConstants> constants{};
  size_t count = 0;

  PipelineKey(std::string_view name, std::span<const Constant> values);
  friend bool operator==(const PipelineKey&, const PipelineKey&) = default;
};

struct Pipeline {
  std::string kernel;
  NS::SharedPtr<MTL::ComputePipelineState> state;
  uint32_t max_threads = 0;  // a threadgroup of it can have
};

// Specialised kernels by key. Filled while a model is loaded; a step only looks things up.
class PipelineCache {
 public:
  PipelineCache(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::Library> library, DeviceCounters& counters);

  // Compiles it when it is missing. Throws Error(device) with Metal's message.
  const Pipeline& get(const PipelineKey& key);

 private:
  std::unique_ptr<Pipeline> compile(const PipelineKey& key);
  struct Hash {
    size_t operator()(const PipelineKey& key) const;
  };

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::Library> library_;
  std::unordered_map<PipelineKey, std::unique_ptr<Pipeline>, Hash> pipelines_;  // a key's name is its pipeline's
  DeviceCounters& counters_;
};

}  // namespace ingot::metal
