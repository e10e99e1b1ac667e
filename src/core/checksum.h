#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ingot {

// A sum at the speed of memory that shows damage: bytes that differ have the same by a chance of about 2^-64. It does not
// withstand whoever means harm: core/digest.h does.
class Checksum {
 public:
  static constexpr size_t kUnit = 64;  // bytes

  void add(std::span<const std::byte> bytes);  // whole units
  uint64_t value() const;

 private:
  std::array<uint64_t, 4> lanes_ = {1, 2, 3, 4};  // each sums 16 bytes of a unit
  uint64_t bytes_ = 0;
};

}  // namespace ingot
