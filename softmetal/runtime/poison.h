// Memory nobody has written is filled with this: NaN as half, bfloat and float, and unlikely as an integer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softmetal {

inline constexpr uint16_t kPoison = 0xffa5;

// `to` is even.
inline void fill_poison(void* to, size_t bytes) {
  auto* p = static_cast<unsigned char*>(to);
  for (size_t i = 0; i + 1 < bytes; i += 2) std::memcpy(p + i, &kPoison, 2);
  if (bytes % 2) p[bytes - 1] = kPoison & 0xff;
}

// Whether the aligned 8 bytes around an address still hold the pattern.
inline bool looks_poisoned(const void* address) {
  uint64_t word;
  std::memcpy(&word, reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t{7}), 8);
  return word == 0xffa5ffa5ffa5ffa5ull;
}

}  // namespace softmetal
