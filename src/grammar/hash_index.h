#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot::grammar {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccd;
  return hash ^ hash >> 32;
}

// Finds numbered things by what they are. The things lie elsewhere; only their numbers and hashes are here.
class HashIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // The number of the thing that `same(number)` recognizes, or kNone.
  template <typename Same>
  uint32_t find(uint64_t hash, Same same) const {
    if (slots_.empty()) return kNone;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].number != kNone; at = (at + 1) & mask)
      if (slots_[at].tag == static_cast<uint32_t>(hash >> 32) && same(slots_[at].number)) return slots_[at].number;
    return kNone;
  }

  void insert(uint64_t hash, uint32_t number) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place({hash, static_cast<uint32_t>(hash >> 32), number});
    ++count_;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t tag = 0;
    uint32_t number = kNone;
  };

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.number != kNone) place(slot);
  }
  void place(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = slot.hash & mask;
    while (slots_[at].number != kNone) at = (at + 1) & mask;
    slots_[at] = slot;
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace ingot::grammar
