#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace ingot::grammar {

// Which of the 256 bytes.
struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet range(unsigned first, unsigned last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.add(static_cast<uint8_t>(byte));
    return set;
  }
  static ByteSet of(uint8_t byte) { return range(byte, byte); }
  static ByteSet all() { return ~ByteSet{}; }

  void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool has(uint8_t byte) const { return words[byte >> 6] >> (byte & 63) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  // The lowest byte; the set must not be empty.
  uint8_t first() const {
    int word = 0;
    while (words[word] == 0) ++word;
    return static_cast<uint8_t>(word * 64 + std::countr_zero(words[word]));
  }

  ByteSet operator~() const { return {{~words[0], ~words[1], ~words[2], ~words[3]}}; }
  ByteSet operator&(const ByteSet& o) const {
    return {{words[0] & o.words[0], words[1] & o.words[1], words[2] & o.words[2], words[3] & o.words[3]}};
  }
  ByteSet operator|(const ByteSet& o) const {
    return {{words[0] | o.words[0], words[1] | o.words[1], words[2] | o.words[2], words[3] | o.words[3]}};
  }
  bool operator==(const ByteSet&) const = default;

  template <typename Visit>
  void each(Visit visit) const {
    for (int word = 0; word < 4; ++word)
      for (uint64_t bits = words[word]; bits != 0; bits &= bits - 1)
        visit(static_cast<uint8_t>(word * 64 + std::countr_zero(bits)));
  }
};

}  // namespace ingot::grammar
