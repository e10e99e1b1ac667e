#pragma once

#include <Metal/Metal.hpp>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ingot::metal {

// The value of one function constant. Indices are those of kernels/common.h; each file of kernels has a range there.
struct Constant {
  enum class Type : uint8_t { u32, f32, boolean };
  uint16_t index = 0;
  Type type = Type::u32;
  uint32_t bits = 0;

  static Constant u(uint16_t index, int64_t value) { return {index, Type::u32, static_cast<uint32_t>(value)}; }
  static Constant b(uint16_t index, bool value) { return {index, Type::boolean, value ? 1u : 0u}; }
  static Constant f(uint16_t index, float value);
  friend bool operator==(const Constant&, const Constant&) = default;
};

// What a pipeline is known by: kernel name and constant values. (The device, and so its family, is one per cache.)
struct PipelineKey {
  static constexpr size_t kMaxConstants = 20;
  std::string_view kernel;
  std::array<Constant, kMaxConstants> constants{};
  size_t count = 0;

  PipelineKey(std::string_view name, std::initializer_list<Constant> values);
  uint64_t hash() const;
};

struct Pipeline {
  std::string kernel;
  std::array<Constant, PipelineKey::kMaxConstants> constants{};
  size_t count = 0;
  NS::SharedPtr<MTL::ComputePipelineState> state;
  uint32_t max_threads = 0;  // a threadgroup of it can have

  bool matches(const PipelineKey& key) const;
};

// Specialised kernels by key. Filled while a model is loaded; a step only looks things up.
class PipelineCache {
 public:
  PipelineCache(NS::SharedPtr<MTL::Device> device, NS::SharedPtr<MTL::Library> library);

  const Pipeline* find(const PipelineKey& key) const;
  // Throws Error(device) with Metal's message.
  const Pipeline& compile(const PipelineKey& key);

  size_t size() const { return pipelines_.size(); }
  uint64_t compiles() const { return compiles_; }

 private:
  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::Library> library_;
  std::unordered_multimap<uint64_t, std::unique_ptr<Pipeline>> pipelines_;
  uint64_t compiles_ = 0;
};

}  // namespace ingot::metal
