#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

// Finds where the last tokens of a text stood before in a list of tokens, as compressors do: by a hash of a few tokens,
// and the places that share it, newest first. Time and memory are linear in the list.
class TokenIndex {
 public:
  struct Match {
    int64_t end = -1;    // in the list, behind the occurrence: what came next then begins here
    int32_t length = 0;  // tokens that agree
  };

  static constexpr int32_t kLeast = 3;   // tokens of a match
  static constexpr int32_t kMost = 32;   // as many are compared
  static constexpr int32_t kPlaces = 8;  // that are looked at

  // Takes in what `list` has beyond what was taken in before, at most `most` tokens; true when that is all.
  bool extend(std::span<const int32_t> list, int64_t most);
  // The longest occurrence of the end of `text` in `list` (as far as it was taken in), the newest of equals, with at
  // least one token behind it.
  Match find(std::span<const int32_t> list, std::span<const int32_t> text) const;
  void clear();

  static constexpr uint64_t kBytesPerToken = 2 * sizeof(int32_t);

 private:
  static uint32_t hash(const int32_t* tokens);

  std::vector<int32_t> heads_;   // by hash: the newest place, -1: none. Its size is a power of two
  std::vector<int32_t> before_;  // of each place: the next older one with its hash. Place i ends behind token i
};

}  // namespace ingot
