#pragma once

#include <cstdint>

namespace ingot {

// 256 values to one q4_k block (144 bytes). The layout is GGUF's; the scales are chosen here, so the bytes differ from
// other programs' while the error does not (tests/formats/quantize_k_test.cc has the figures).
void write_q4_k(const float* x, uint8_t* block);

}  // namespace ingot
