// A device, a library from source, and dispatches in one call, for tests of the software Metal device.
#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "softmetal/audit.h"
#include "softmetal/softmetal.h"

namespace softmetal_test {

inline constexpr const char* kPrologue = "#include <metal_stdlib>\nusing namespace metal;\n";

// A function constant of a given Metal type.
struct Constant {
  MTL::DataType type;
  uint64_t bits;
  unsigned index;
};
inline Constant constant(unsigned index, uint32_t v) { return {MTL::DataTypeUInt, v, index}; }
inline Constant constant(unsigned index, int32_t v) { return {MTL::DataTypeInt, static_cast<uint32_t>(v), index}; }
inline Constant constant(unsigned index, bool v) { return {MTL::DataTypeBool, v, index}; }
inline Constant constant(unsigned index, float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return {MTL::DataTypeFloat, bits, index};
}

class Gpu {
 public:
  // Tests choose their mode; the environment's seed and the like stay.
  explicit Gpu(softmetal::Mode mode = softmetal::Mode::strict, uint64_t seed = 0);
  ~Gpu();

  // Line 1 of `body` is line 1 of test.metal. Throws std::runtime_error with the compiler's message.
  void compile(const std::string& body, std::initializer_list<std::pair<const char*, const char*>> macros = {});
  MTL::ComputePipelineState* pipeline(const std::string& name, const std::vector<Constant>& constants = {});

  template <class T>
  NS::SharedPtr<MTL::Buffer> buffer(const std::vector<T>& values,
                                    MTL::ResourceOptions options = MTL::ResourceStorageModeShared) {
    return NS::TransferPtr(device->newBuffer(values.data(), values.size() * sizeof(T), options));
  }
  NS::SharedPtr<MTL::Buffer> empty(size_t bytes, MTL::ResourceOptions options = MTL::ResourceStorageModeShared) {
    return NS::TransferPtr(device->newBuffer(bytes, options));
  }

  // One kernel in one command buffer. Returns the error, empty when it completed.
  struct Run {
    std::vector<MTL::Buffer*> buffers;
    MTL::Size groups = MTL::Size(1, 1, 1), threads = MTL::Size(32, 1, 1);
    bool by_threads = false;
    size_t threadgroup_bytes = 0;
  };
  std::string run(const std::string& name, const Run& run, const std::vector<Constant>& constants = {});
  static std::string finish(MTL::CommandBuffer* command_buffer);

  NS::SharedPtr<NS::AutoreleasePool> pool;
  NS::SharedPtr<MTL::Device> device;
  NS::SharedPtr<MTL::CommandQueue> queue;
  NS::SharedPtr<MTL::Library> library;

 private:
  std::vector<NS::SharedPtr<MTL::ComputePipelineState>> pipelines_;
};

template <class T>
std::vector<T> read(MTL::Buffer* buffer) {
  const T* p = static_cast<const T*>(buffer->contents());
  return std::vector<T>(p, p + buffer->length() / sizeof(T));
}

// IEEE half and bfloat, by plain arithmetic.
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bfloat_to_float(uint16_t b);
uint16_t float_to_bfloat(float f);

// "what": the message of the Violation that `f` throws; empty when it throws none.
template <class F>
std::string violation(F f) {
  try {
    f();
  } catch (const softmetal::Violation& v) {
    return v.what();
  }
  return "";
}

}  // namespace softmetal_test
