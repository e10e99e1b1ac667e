#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

// Finds where the last tokens of a text stood before in a list of tokens: what a suffix tree tells of its deepest node,
// found as compressors do, by hashes of a few and of more tokens and the places that share them, newest first. Time and
// memory are linear in the list.
class TokenIndex {
 public:
  static constexpr int32_t kLeast = 3;   // tokens of a match
  static constexpr int32_t kMost = 32;   // as many are compared
  static constexpr int32_t kPlaces = 8;  // that are looked at

  struct Matches {
    int32_t length = 0;  // tokens that agree; 0: there is no match
    int32_t count = 0;
    std::array<int64_t, kPlaces> ends{};  // in the list, behind the occurrences: what came next then begins there
  };

  // Takes in what `list` has beyond what was taken in before, at most `most` tokens; true when that is all.
  bool extend(std::span<const int32_t> list, int64_t most);
  // The longest occurrences of the end of `text` in `list` (as far as it was taken in), newest first, with at least one
  // token behind them.
  Matches find(std::span<const int32_t> list, std::span<const int32_t> text) const;
  void clear();

 private:
  // Places by the hash of their last tokens. Of many that share a few, only the newest are looked at; so more tokens
  // are looked for first.
  struct Level {
    int32_t tokens;
    std::vector<int32_t> heads;   // by hash: the newest place, -1: none. Its size is a power of two
    std::vector<int32_t> before;  // of each place: the next older one with its hash. Place i ends behind token i

    size_t slot(const int32_t* end) const;  // of the tokens in front of it
    void link(std::span<const int32_t> list, int64_t place);
    void add(std::span<const int32_t> list);
  };

  std::array<Level, 3> levels_{{{16, {}, {}}, {8, {}, {}}, {kLeast, {}, {}}}};

 public:
  static constexpr uint64_t kBytesPerToken = 3 * 2 * sizeof(int32_t);
};

}  // namespace ingot
