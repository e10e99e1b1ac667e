#include "orchestrator/block_hash.h"

#include <random>
#include <vector>

namespace ingot {
namespace {

struct Key {
  uint64_t low, high;
};

const Key& process_key() {
  static const Key key = [] {
    std::random_device random;
    const auto word = [&random] { return (static_cast<uint64_t>(random()) << 32) | random(); };
    return Key{word() | 1, word() | 1};
  }();
  return key;
}

// Both halves of the 128-bit product folded together: every bit of the input reaches every bit of the result.
uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

BlockHash chain_hash(const BlockHash& parent, std::span<const int32_t> tokens) {
  constexpr uint64_t kOddA = 0x9e3779b97f4a7c15, kOddB = 0xd6e8feb86659fd93;
  const Key& key = process_key();
  uint64_t low = fold(parent.low ^ key.low, kOddA ^ parent.high);
  uint64_t high = fold(parent.high ^ key.high, kOddB ^ parent.low);
  for (const int32_t token : tokens) {
    const uint64_t word = static_cast<uint32_t>(token) + (uint64_t{1} << 32);
    low = fold(low ^ word * kOddA, key.low ^ kOddB) + high;
    high = fold(high ^ word * kOddB, key.high ^ kOddA) + low;
  }
  return {fold(low ^ key.high, kOddA), fold(high ^ key.low, kOddB)};
}

BlockHash salt_hash(std::string_view text) {
  if (text.empty()) return {};
  std::vector<int32_t> bytes(text.begin(), text.end());
  return chain_hash({}, bytes);
}

}  // namespace ingot
