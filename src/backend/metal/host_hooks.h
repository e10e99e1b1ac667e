#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "backend/metal/memory.h"
#include "core/dtype.h"

// Where Apple's Metal and the software device that stands in for it elsewhere differ. Each has one file that answers
// these, and traffic.h; nothing else of this device knows on which of them it runs.
namespace ingot::metal::host {

bool is_software();
bool has_bfloat();          // in kernels: Metal 3.1, which came with macOS 14
bool has_residency_sets();  // they came with macOS 15

// The folder of the program, or of the Python module, that this code is part of.
std::filesystem::path own_folder();

// A new device on the first NVIDIA GPU. Throws Error(declined) where there is none.
MTL::Device* new_cuda_device();

// "580.159.04", "macOS 15.5": what choices by timing depend on beside the device.
std::string driver_version(bool cuda);

// What the rules of a step allow in between is watched, where something can watch it: one command buffer and one wait
// in a step; no wait, commit, readback, allocation or compile while it is encoded.
void begin_step();
void begin_encode();
void end_encode();
void end_step();

// A thread of the host is about to read or write a part of a shared buffer while a step runs: watched, too.
void host_access(BufferView view, bool writes);

// Work that another library puts on the stream (a cudaStream_t) which runs the command buffer, between its encoders.
void encode_call(MTL::CommandBuffer* commands, std::function<void(void* stream)> act);

// The copies of a blit encoder may run beside what is encoded behind it, as far as fences allow.
void run_beside(MTL::BlitCommandEncoder* encoder);

// What a dispatch of a rehearsal would ask for, where something keeps a list of it.
void note_dispatch(const MTL::ComputePipelineState* pipeline, MTL::Size threads, size_t threadgroup_bytes);

// Products of large matrices by a library of the device's maker, between the dispatches of an encoder: out [rows,
// outputs] = x [rows, cols] weights [outputs, cols]^T, or out += that, summed in f32. Rows of x and of the weights are
// `stride` elements apart, those of `out` out_stride; all begin at multiples of 16 bytes.
struct GemmProduct {
  DType type = DType::f16;  // of x and the weights: f16 or bf16
  DType out_type = DType::f16;
  bool accumulate = false;
  int64_t rows = 0, outputs = 0, cols = 0, stride = 0, out_stride = 0;
};
// Multiprocessors whose simdgroups multiply four together, for kernels/linear_wide.metal; 0: they do not.
unsigned warpgroups(const MTL::Device* device);
std::string gemm_name(const MTL::Device* device);  // "cuBLASLt 13.0"; empty: there is none
// To be called before the first product of these types, outputs and columns. Throws Error(device).
void prepare_gemm(MTL::Device* device, const GemmProduct& product);
void encode_gemm(MTL::ComputeCommandEncoder* encoder, const GemmProduct& product, BufferView x, BufferView weights,
                 BufferView out);

}  // namespace ingot::metal::host
