#pragma once

#include <cstdint>

namespace ingot::cpu {

// One uniform number in [0, 1) from Philox4x32-10: a function of the seed (key) and a counter, with no state between
// draws, so that a token depends only on its own row.
inline double philox_uniform(uint64_t seed, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0;
    const uint64_t b = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const uint64_t bits = (uint64_t{c0} << 32) | c1;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace ingot::cpu
