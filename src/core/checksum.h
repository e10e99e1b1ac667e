#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ingot {

// A sum at the speed of memory that shows damage: where bytes differ within one aligned word of 8 it differs surely,
// elsewhere but for a chance of 2^-64. It does not withstand whoever means harm: core/digest.h does.
class Checksum {
 public:
  static constexpr size_t kUnit = 64;  // bytes

  void add(std::span<const std::byte> bytes);  // whole units
  uint64_t value() const;

 private:
  static constexpr uint64_t kPrime = 0x9e3779b185ebca87u, kSecondPrime = 0xc2b2ae3d27d4eb4fu;
  std::array<uint64_t, kUnit / 8> lanes_ = {1, 2, 3, 4, 5, 6, 7, 8};  // each sums every eighth word
  uint64_t bytes_ = 0;
};

}  // namespace ingot
