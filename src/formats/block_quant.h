#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/dtype.h"

// Plain conversions between float and the stored formats: the reference that fast kernels are checked against. Layouts
// are GGUF's, byte for byte; the order of the float operations is the one of ggml's reference, so results are equal to
// the bit.
namespace ingot {

// out[0..elements) = the values of the blocks. `elements` is a multiple of the block size; `blocks` needs no alignment.
void dequantize(DType type, const std::byte* blocks, size_t elements, float* out);

// The reverse, for plain types and the formats that have a writer (some choose scales of our own); throws declined for
// others. `blocks` has dtype_bytes(type, elements) bytes.
void quantize(DType type, const float* values, size_t elements, std::byte* blocks);

// "q8_0, q4_0 or q4_k"
std::string names_of(std::span<const DType> types);

}  // namespace ingot
