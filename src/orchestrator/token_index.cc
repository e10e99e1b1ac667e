#include "orchestrator/token_index.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr size_t kFewestHeads = 256;
constexpr size_t kMostHeads = size_t{1} << 17;  // what it costs to grow is bounded: the step loop waits for it

}  // namespace

uint32_t TokenIndex::hash(const int32_t* tokens) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (int32_t i = 0; i < kLeast; ++i) h = (h ^ static_cast<uint32_t>(tokens[i])) * 0xff51afd7ed558ccdu;
  return static_cast<uint32_t>(h >> 32);
}

bool TokenIndex::extend(std::span<const int32_t> list, int64_t most) {
  const auto end = std::min<int64_t>(std::ssize(list), std::ssize(before_) + most);
  const auto link = [&](int64_t place) {
    if (place + 1 < kLeast) return;
    int32_t& head = heads_[hash(&list[static_cast<size_t>(place + 1 - kLeast)]) & (heads_.size() - 1)];
    before_[static_cast<size_t>(place)] = head;
    head = static_cast<int32_t>(place);
  };
  for (auto place = std::ssize(before_); place < end; ++place) {
    before_.push_back(-1);
    if (before_.size() > heads_.size() && heads_.size() < kMostHeads) {  // grows by doubling: still linear in all
      heads_.assign(std::max(2 * heads_.size(), kFewestHeads), -1);
      for (int64_t old = 0; old < place; ++old) link(old);
    }
    link(place);
  }
  return end == std::ssize(list);
}

TokenIndex::Match TokenIndex::find(std::span<const int32_t> list, std::span<const int32_t> text) const {
  Match best;
  if (std::ssize(text) < kLeast || heads_.empty()) return best;
  int32_t place = heads_[hash(&text[text.size() - kLeast]) & (heads_.size() - 1)];
  for (int32_t looked = 0; place >= 0 && looked < kPlaces; ++looked, place = before_[static_cast<size_t>(place)]) {
    if (place + 1 >= std::ssize(list)) continue;  // the end of the list itself: nothing came next
    const auto most = std::min<int64_t>({kMost, place + 1, std::ssize(text)});
    int32_t length = 0;
    while (length < most && list[static_cast<size_t>(place - length)] == text[text.size() - 1 - length]) ++length;
    if (length >= kLeast && length > best.length) best = {.end = place + 1, .length = length};
  }
  return best;
}

void TokenIndex::clear() {
  heads_.clear();
  before_.clear();
}

}  // namespace ingot
