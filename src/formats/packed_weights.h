#pragma once

#include <memory>

#include "formats/checkpoint.h"
#include "formats/packed_format.h"

namespace ingot {

class SafetensorsCheckpoint;

// The tensors of a packed checkpoint as matrices [out, in] in our formats, each computed when it is asked for on
// `threads` threads (0: one a core):
//   4 bits, gptq with sym      q4_0, exact
//   4 bits, mlx                q4_1, exact
//   4 bits, awq and other gptq q4_1: scales and levels exact, scale * zero point rounded to f16
//   8 bits, gptq with sym      q8_0, exact
//   8 bits, all others         q8_0, quantized again
//   gptq with act-order        q8_0, quantized again: columns of one block have different scales
// Exact as far as f16 holds the scales: all f16 ones, and bf16 ones from 2^-17 up. Routers become f32, stacked experts
// one tensor each. Throws bad_file when a matrix is not whole.
std::shared_ptr<Checkpoint> unpack_checkpoint(std::shared_ptr<const SafetensorsCheckpoint> source,
                                              const PackedFormat& format, int threads);

}  // namespace ingot
