#include "grammar/mask.h"

#include <algorithm>
#include <unordered_set>

#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxKeptBytes = size_t{16} << 20;
constexpr int kEndless = 1 << 20;       // as a free run: any number of characters
constexpr size_t kMaxFreeStates = 8;    // after one more character of a free run; beyond them a walk is cheaper
constexpr uint32_t kWorthLooking = 16;  // plain tokens below a node, for a look whether any text may follow

// The bytes of plain characters of JSON strings, by how many bytes of one have been read: first bytes of 1, 2, 3 and 4
// bytes, with the ranges of what follows.
struct PlainPiece {
  uint8_t first, last;  // the first byte
  uint8_t least, most;  // the second byte; 0: there is none
  int more;             // bytes 0x80..0xBF after these
};
constexpr PlainPiece kPlainPieces[] = {
    {0x20, 0x21, 0, 0, 0},       {0x23, 0x5B, 0, 0, 0},       {0x5D, 0x7F, 0, 0, 0},       {0xC2, 0xDF, 0x80, 0xBF, 0},
    {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1},
    {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
};

using Found = std::vector<Configuration*>;

// All that the bytes first..last lead to, each once. False: one of them leads nowhere.
bool step_all(Automaton& automaton, const Found& from, unsigned first, unsigned last, Found& to) {
  for (Configuration* each : from)
    for (unsigned byte = first; byte <= last; ++byte) {
      Configuration* next = automaton.step(each, static_cast<uint8_t>(byte));
      if (next == automaton.dead()) return false;
      if ((to.empty() || to.back() != next) && std::ranges::find(to, next) == to.end()) to.push_back(next);
    }
  return true;
}

// Where any one plain character leads from the given ones, each once. False: nowhere, for some.
bool step_char(Automaton& automaton, const Found& from, Found& to) {
  for (const PlainPiece& piece : kPlainPieces) {
    Found at;
    if (!step_all(automaton, from, piece.first, piece.last, at)) return false;
    if (piece.least != 0) {
      Found second;
      if (!step_all(automaton, at, piece.least, piece.most, second)) return false;
      at = std::move(second);
    }
    for (int i = 0; i < piece.more; ++i) {
      Found after;
      if (!step_all(automaton, at, 0x80, 0xBF, after)) return false;
      at = std::move(after);
    }
    for (Configuration* each : at)
      if (std::ranges::find(to, each) == to.end()) to.push_back(each);
  }
  return true;
}

}  // namespace

Masks::Masks(Automaton& automaton, const Vocabulary& vocabulary) : automaton_(automaton), vocabulary_(vocabulary) {
  path_.resize(vocabulary.tree().max_depth + 1);
}

bool Masks::is_free(Configuration* at) {
  if (at->is_free < 0) {
    Found to;
    // The space tells most others apart at once.
    at->is_free = automaton_.step(at, ' ') == at && step_char(automaton_, {at}, to) && to.size() == 1;
  }
  return at->is_free != 0;
}

// Breadth first, a character at a time, until one leads nowhere or nothing new is met.
int Masks::free_run(Configuration* from) {
  if (from->free_run >= 0) return from->free_run;
  constexpr int kFar = 12;  // the longest slice but the endless one
  std::unordered_set<Configuration*> seen{from};
  Found level{from};
  int run = 0;
  while (!level.empty() && run < kFar && level.size() <= kMaxFreeStates) {
    Found next;
    if (!step_char(automaton_, level, next)) break;
    std::erase_if(next, [&](Configuration* each) { return !seen.insert(each).second; });
    ++run;
    level = std::move(next);
  }
  if (level.empty()) run = kEndless;
  from->free_run = run;
  return run;
}

// Nodes first..last of a tree; path_ holds what leads to them.
void Masks::walk(const TokenTree& tree, size_t first, size_t last) {
  const TokenTree::Node* const nodes = tree.nodes.data();
  Configuration* const dead = automaton_.dead();
  for (size_t i = first; i < last;) {
    const TokenTree::Node& node = nodes[i];
    Configuration* const to = automaton_.step(path_[node.depth - 1], node.byte);
    if (to == dead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = to;
    if (node.token >= 0) found_.push_back(node.token);
    ++i;
  }
}

// The whole tree. Below a node after which any plain text may follow, only the others are walked.
void Masks::walk_all(Configuration* from) {
  const auto& nodes = vocabulary_.tree().nodes;
  const auto &plain_before = vocabulary_.plain_before(), &others_before = vocabulary_.others_before();
  Configuration* const dead = automaton_.dead();
  path_[0] = from;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTree::Node& node = nodes[i];
    Configuration* const to = automaton_.step(path_[node.depth - 1], node.byte);
    if (to == dead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = to;
    if (node.token >= 0) found_.push_back(node.token);
    ++i;
    if (plain_before[node.end] - plain_before[i] < kWorthLooking || !is_free(to)) continue;
    ranges_.emplace_back(plain_before[i], plain_before[node.end]);
    walk(vocabulary_.slices()[0].others, others_before[i], others_before[node.end]);
    i = node.end;
  }
}

const Masks::Kept& Masks::keep(Configuration* from) {
  const auto known = kept_.find(from->number);
  if (known != kept_.end()) return known->second;
  Kept mask;
  found_.clear();
  ranges_.clear();
  // Looking for a run costs little where the first plain bytes already lead nowhere.
  const int run = free_run(from);
  const auto& slices = vocabulary_.slices();
  for (size_t i = 0; i < slices.size() && mask.slice < 0; ++i)
    if (run >= slices[i].max_chars) mask.slice = static_cast<int>(i);
  if (mask.slice < 0) {
    walk_all(from);
  } else {
    const TokenTree& others = slices[static_cast<size_t>(mask.slice)].others;
    path_[0] = from;
    walk(others, 0, others.nodes.size());
  }
  pack(mask);
  if (kept_bytes_ + mask.bytes() > kMaxKeptBytes) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += mask.bytes();
  return kept_.emplace(from->number, std::move(mask)).first->second;
}

// Puts what a walk has found into the mask.
void Masks::pack(Kept& mask) const {
  const auto set = [&](int32_t token) { mask.words[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32); };
  const auto clear = [&](int32_t token) {
    mask.words[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
  };
  const std::vector<int32_t>& plain = vocabulary_.plain_tokens();
  size_t in_ranges = 0;
  for (const auto& [first, last] : ranges_) in_ranges += last - first;
  if (in_ranges == 0 && found_.size() <= vocabulary_.mask_words()) {
    mask.tokens = found_;
    return;
  }
  if (in_ranges > plain.size() / 2) {  // all plain tokens, but those between the ranges
    mask.words = vocabulary_.slices()[0].bits;
    uint32_t next = 0;
    for (const auto& [first, last] : ranges_) {
      for (; next < first; ++next) clear(plain[next]);
      next = last;
    }
    for (; next < plain.size(); ++next) clear(plain[next]);
  } else {
    mask.words = mask.slice < 0 ? std::vector<uint32_t>(vocabulary_.mask_words())
                                : vocabulary_.slices()[static_cast<size_t>(mask.slice)].bits;
    for (const auto& [first, last] : ranges_)
      for (uint32_t i = first; i < last; ++i) set(plain[i]);
  }
  for (const int32_t token : found_) set(token);
}

void Masks::fill(Configuration* from, std::span<uint32_t> bits) {
  const Kept& mask = keep(from);
  if (!mask.words.empty()) {
    std::ranges::copy(mask.words, bits.begin());
  } else if (mask.slice >= 0) {
    std::ranges::copy(vocabulary_.slices()[static_cast<size_t>(mask.slice)].bits, bits.begin());
  } else {
    std::ranges::fill(bits, 0);
  }
  for (const int32_t token : mask.tokens) bits[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  if (from->complete)
    for (const int32_t id : vocabulary_.end_ids()) bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

}  // namespace ingot::grammar
