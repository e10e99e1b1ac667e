#pragma once

#include <cstdint>
#include <memory>

#include "formats/checkpoint.h"

namespace ingot {

class SafetensorsCheckpoint;

// How a safetensors checkpoint of few bits is packed.
struct PackedFormat {
  enum class Method { none, awq, gptq, mlx };
  Method method = Method::none;
  int bits = 4;
  int64_t group_size = 128;  // columns that share a scale; a multiple of 32
  bool symmetric = false;    // gptq: every zero point is the middle level
  bool reordered = false;    // gptq: columns are grouped by g_idx
  bool zero_minus_one = true;  // gptq: zero points are stored less one (all but checkpoint_format gptq_v2)
};

// The tensors of a packed checkpoint as matrices [out, in] in our formats, each made when it is asked for:
//   4 bits, symmetric gptq     q4_0, exact
//   4 bits, all others         q4_1: scale and code exact, the offset rounded to f16
//   8 bits, symmetric gptq     q8_0, exact
//   8 bits, or reordered       q8_0, quantized again
// f16 and bf16 scales count as exact where f16 holds them. Throws bad_file when a matrix is not whole.
std::shared_ptr<Checkpoint> unpack_checkpoint(std::shared_ptr<const SafetensorsCheckpoint> source,
                                              const PackedFormat& format, int threads);

}  // namespace ingot
