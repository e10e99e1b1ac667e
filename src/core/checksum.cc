#include "core/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace ingot {

static_assert(std::endian::native == std::endian::little, "sums are of words as they lie in memory");

namespace {

// Numbers without a pattern: the golden ratio and roots of primes, as hash functions take them.
constexpr std::array<uint64_t, 4> kKeys = {0x9e3779b97f4a7c15u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                           0xa54ff53a5f1d36f1u};

uint64_t word_at(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// All bits of both count for all bits of it. One multiplication is what there is time for in 16 bytes.
uint64_t mix(uint64_t a, uint64_t b) {
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

void Checksum::add(std::span<const std::byte> bytes) {
  if (bytes.size() % kUnit != 0)
    throw_error(ErrorKind::internal, "checksum of {} bytes: must be a multiple of {}", bytes.size(), kUnit);
  auto [a, b, c, d] = lanes_;
  const auto take = [](uint64_t& lane, const std::byte* from, uint64_t key) {
    lane = mix(word_at(from) ^ key, word_at(from + 8) ^ lane);
  };
  const std::byte* from = bytes.data();
  for (size_t unit = 0; unit < bytes.size() / kUnit; ++unit, from += kUnit) {
    take(a, from, kKeys[0]);
    take(b, from + 16, kKeys[1]);
    take(c, from + 32, kKeys[2]);
    take(d, from + 48, kKeys[3]);
  }
  lanes_ = {a, b, c, d};
  bytes_ += bytes.size();
}

uint64_t Checksum::value() const {
  uint64_t sum = bytes_;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) sum = mix(sum ^ kKeys[lane], lanes_[lane] ^ kKeys[3 - lane]);
  return sum;
}

}  // namespace ingot
