#include "orchestrator/token_index.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr size_t kFewestHeads = 256;
constexpr size_t kMostHeads = size_t{1} << 17;  // what it costs to grow is bounded: the step loop waits for it

}  // namespace

size_t TokenIndex::Level::slot(const int32_t* end) const {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const int32_t* token = end - tokens; token < end; ++token)
    h = (h ^ static_cast<uint32_t>(*token)) * 0xff51afd7ed558ccdu;
  return static_cast<size_t>(h >> 32) & (heads.size() - 1);
}

void TokenIndex::Level::link(std::span<const int32_t> list, int64_t place) {
  if (place + 1 < tokens) return;
  int32_t& head = heads[slot(list.data() + place + 1)];
  before[static_cast<size_t>(place)] = head;
  head = static_cast<int32_t>(place);
}

void TokenIndex::Level::add(std::span<const int32_t> list) {
  const auto place = std::ssize(before);
  before.push_back(-1);
  if (before.size() > heads.size() && heads.size() < kMostHeads) {  // grows by doubling: still linear in all
    heads.assign(std::max(2 * heads.size(), kFewestHeads), -1);
    for (int64_t old = 0; old < place; ++old) link(list, old);
  }
  link(list, place);
}

bool TokenIndex::extend(std::span<const int32_t> list, int64_t most) {
  const auto taken = std::ssize(levels_[0].before), end = std::min<int64_t>(std::ssize(list), taken + most);
  for (auto place = taken; place < end; ++place)
    for (Level& level : levels_) level.add(list);
  return end == std::ssize(list);
}

TokenIndex::Matches TokenIndex::find(std::span<const int32_t> list, std::span<const int32_t> text) const {
  Matches best;
  for (const Level& level : levels_) {
    if (std::ssize(text) < level.tokens || level.heads.empty()) continue;
    int32_t place = level.heads[level.slot(text.data() + text.size())];
    for (int32_t looked = 0; place >= 0 && looked < kPlaces;
         ++looked, place = level.before[static_cast<size_t>(place)]) {
      if (place + 1 >= std::ssize(list)) continue;  // the end of the list itself: nothing came next
      const auto most = std::min<int64_t>({kMost, place + 1, std::ssize(text)});
      int32_t length = 0;
      while (length < most && list[static_cast<size_t>(place - length)] == text[text.size() - 1 - length]) ++length;
      if (length < std::max(level.tokens, best.length)) continue;
      if (length > best.length) best = {.length = length};
      best.ends[static_cast<size_t>(best.count++)] = place + 1;
    }
    if (best.length > 0) break;
  }
  return best;
}

void TokenIndex::clear() {
  for (Level& level : levels_) {
    level.heads.clear();
    level.before.clear();
  }
}

}  // namespace ingot
