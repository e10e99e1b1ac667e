// Products of large matrices by a library of the device's maker, between the dispatches of a compute encoder. Apple's
// headers have nothing like it. On devices that have no library gemm_name() is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace MTL {
class Buffer;
class ComputeCommandEncoder;
class Device;
}  // namespace MTL

namespace softmetal {

enum class GemmElement : uint8_t { f16, bf16, f32 };

// out [rows, outputs] = x [rows, cols] weights [outputs, cols]^T, or out += that, summed in f32. Rows of x and of the
// weights are `stride` elements apart, those of `out` out_stride. All begin at multiples of 16 bytes. A row of `out`
// has the same bits whatever the other rows are and however many there are.
struct GemmProduct {
  GemmElement type = GemmElement::f16;  // of x and the weights: f16 or bf16
  GemmElement out_type = GemmElement::f16;
  bool accumulate = false;
  uint64_t rows = 0, outputs = 0, cols = 0, stride = 0, out_stride = 0;
  const MTL::Buffer *x = nullptr, *weights = nullptr, *out = nullptr;
  size_t x_offset = 0, weights_offset = 0, out_offset = 0;
};

// "cuBLASLt 13.0"
std::string gemm_name(const MTL::Device* device);
// Chooses how products of these types, outputs and columns are computed; rows and buffers do not matter. To be called
// before the first one is encoded. An error, or empty.
std::string prepare_gemm(MTL::Device* device, const GemmProduct& product);
void encode_gemm(MTL::ComputeCommandEncoder* encoder, const GemmProduct& product);

}  // namespace softmetal
