#pragma once

#include <Metal/Metal.hpp>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/metal/library.h"
#include "backend/metal/linear/plan.h"
#include "core/half.h"
#include "formats/block_quant.h"
#include "quant_blocks.h"
#include "softmetal/softmetal.h"

// Runs the matrix kernels alone on a Metal device: nothing between the test and the kernels but Metal's API.
namespace ingot::test {

template <typename T>
using Ptr = NS::SharedPtr<T>;

inline std::string message(NS::Error* error) {
  return error == nullptr ? "no message" : error->localizedDescription()->utf8String();
}

class MetalRig {
 public:
  explicit MetalRig(const softmetal::Options& options) {
    pool_ = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    softmetal::set_options(options);
    device_ = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
    queue_ = NS::TransferPtr(device_->newCommandQueue());
    library_ = metal::load_library(device_.get(), {}).library;
  }

  // Lengths are rounded up to what a copy can have.
  Ptr<MTL::Buffer> private_buffer(std::span<const std::byte> bytes, const char* label) {
    auto from = NS::TransferPtr(device_->newBuffer((bytes.size() + 3) / 4 * 4, MTL::ResourceStorageModeShared));
    std::memset(from->contents(), 0, from->length());
    std::memcpy(from->contents(), bytes.data(), bytes.size());
    auto to = empty_buffer(bytes.size(), label);
    copy(from.get(), to.get());
    return to;
  }
  Ptr<MTL::Buffer> empty_buffer(size_t bytes, const char* label) {
    auto buffer = NS::TransferPtr(device_->newBuffer((bytes + 3) / 4 * 4, MTL::ResourceStorageModePrivate));
    buffer->setLabel(NS::String::string(label, NS::UTF8StringEncoding));
    return buffer;
  }
  std::vector<std::byte> read(MTL::Buffer* from, size_t bytes) {
    auto to = NS::TransferPtr(device_->newBuffer(from->length(), MTL::ResourceStorageModeShared));
    copy(from, to.get());
    std::vector<std::byte> out(bytes);
    std::memcpy(out.data(), to->contents(), bytes);
    return out;
  }

  MTL::ComputePipelineState* pipeline(const std::string& kernel, std::span<const metal::Constant> constants) {
    std::string key = kernel;
    for (const metal::Constant& c : constants) key += " " + std::to_string(c.value);
    if (auto it = pipelines_.find(key); it != pipelines_.end()) return it->second.get();
    auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
    for (const metal::Constant& c : constants) {
      const bool flag = c.value != 0;
      if (c.boolean)
        values->setConstantValue(&flag, MTL::DataTypeBool, NS::UInteger{c.index});
      else
        values->setConstantValue(&c.value, MTL::DataTypeUInt, NS::UInteger{c.index});
    }
    NS::Error* error = nullptr;
    auto function = NS::TransferPtr(
        library_->newFunction(NS::String::string(kernel.c_str(), NS::UTF8StringEncoding), values.get(), &error));
    if (!function) throw std::runtime_error(message(error));
    auto state = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
    if (!state) throw std::runtime_error(message(error));
    return (pipelines_[key] = state).get();
  }

  // Encodes with f, runs, and throws what went wrong.
  template <typename F>
  void run(F&& f) {
    MTL::CommandBuffer* commands = queue_->commandBuffer();
    MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
    f(encoder);
    encoder->endEncoding();
    finish(commands);
  }

 private:
  void copy(MTL::Buffer* from, MTL::Buffer* to) {
    MTL::CommandBuffer* commands = queue_->commandBuffer();
    MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
    blit->copyFromBuffer(from, 0, to, 0, to->length());
    blit->endEncoding();
    finish(commands);
  }
  void finish(MTL::CommandBuffer* commands) {
    commands->commit();
    commands->waitUntilCompleted();
    if (commands->status() != MTL::CommandBufferStatusCompleted) throw std::runtime_error(message(commands->error()));
  }

  Ptr<NS::AutoreleasePool> pool_;
  Ptr<MTL::Device> device_;
  Ptr<MTL::CommandQueue> queue_;
  Ptr<MTL::Library> library_;
  std::map<std::string, Ptr<MTL::ComputePipelineState>> pipelines_;
};

// ---- weights and activations ----------------------------------------------------------------------------------------

// A random matrix of one format: as stored, packed, and as numbers.
struct StoredMatrix {
  std::vector<uint8_t> bytes;
  TensorView tensor;
  MatrixSpec spec;
  std::vector<std::byte> packed;
  std::vector<double> values;  // [rows, cols]

  double at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * spec.cols + col)]; }
};

inline std::unique_ptr<StoredMatrix> stored_matrix(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  auto m = std::make_unique<StoredMatrix>();
  std::mt19937 rng(seed);
  m->bytes = random_tensor(type, rows, cols, rng);
  m->tensor = {"matrix", type, {rows, cols}, std::as_bytes(std::span(m->bytes))};
  m->spec = {"matrix", {{&m->tensor, 0}}, rows, cols};
  metal::Packer packer(m->spec, nullptr);
  m->packed.resize(packer.bytes());
  packer.fill(0, m->packed);
  const size_t row_bytes = dtype_bytes(type, static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      m->values.push_back(value_at(type, m->bytes.data() + static_cast<size_t>(r) * row_bytes, c));
  return m;
}

// Numbers as a device keeps them, and back.
inline std::vector<std::byte> stored(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(dtype_bytes(type, values.size()));
  quantize(type, values.data(), values.size(), bytes.data());
  return bytes;
}
inline std::vector<float> floats(DType type, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / dtype_bytes(type, 1));
  dequantize(type, bytes.data(), values.size(), values.data());
  return values;
}
inline std::vector<float> normal_floats(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(rng) * scale;
  return v;
}

}  // namespace ingot::test
