#include "core/checksum.h"

#include <bit>
#include <cstring>

#include "core/error.h"

namespace ingot {

static_assert(std::endian::native == std::endian::little, "sums are of words as they lie in memory");

void Checksum::add(std::span<const std::byte> bytes) {
  if (bytes.size() % kUnit != 0)
    throw_error(ErrorKind::internal, "checksum of {} bytes: must be a multiple of {}", bytes.size(), kUnit);
  // Locals, so that they stay in registers. Each step can be undone, so two sums that differ once do so from there on:
  // the round of XXH64.
  std::array<uint64_t, kUnit / 8> lanes = lanes_;
  const std::byte* from = bytes.data();
  for (size_t unit = 0; unit < bytes.size() / kUnit; ++unit, from += kUnit)
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      uint64_t word;
      std::memcpy(&word, from + 8 * lane, 8);
      lanes[lane] = std::rotl(lanes[lane] + word * kSecondPrime, 31) * kPrime;
    }
  lanes_ = lanes;
  bytes_ += bytes.size();
}

uint64_t Checksum::value() const {
  uint64_t sum = bytes_;
  for (const uint64_t lane : lanes_) sum = std::rotl((sum ^ lane) * kSecondPrime, 27) * kPrime;
  return sum ^ sum >> 33;
}

}  // namespace ingot
