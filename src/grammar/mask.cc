#include "grammar/mask.h"

#include <algorithm>
#include <unordered_set>

#include "core/utf8.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxKeptBytes = size_t{16} << 20;
constexpr int kEndless = 1 << 20;  // as a free run: any number of characters

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

}  // namespace

Masks::Masks(Automaton& automaton, const Vocabulary& vocabulary) : automaton_(automaton), vocabulary_(vocabulary) {
  path_.resize(vocabulary.tree().max_depth + 1);
}

// Breadth first, a character at a time, until one leads nowhere or nothing new is met.
int Masks::free_run(Configuration* from) {
  if (from->free_run >= 0) return from->free_run;
  constexpr int kFar = 12;  // the longest slice but the endless one
  std::unordered_set<Configuration*> seen{from};
  Found level{from};
  int run = 0;
  while (!level.empty() && run < kFar) {
    Found next;
    bool free = true;
    for (const PlainPiece& piece : kPlainPieces) {
      Found at;
      free = step_all(automaton_, level, piece.first, piece.last, at);
      if (free && piece.least != 0) {
        Found second;
        free = step_all(automaton_, at, piece.least, piece.most, second);
        at = std::move(second);
      }
      for (int i = 0; free && i < piece.more; ++i) {
        Found after;
        free = step_all(automaton_, at, 0x80, 0xBF, after);
        at = std::move(after);
      }
      if (!free) break;
      for (Configuration* each : at)
        if (seen.insert(each).second) next.push_back(each);
    }
    if (!free) break;
    ++run;
    level = std::move(next);
  }
  if (level.empty()) run = kEndless;
  from->free_run = run;
  return run;
}

void Masks::walk(const TokenTree& tree, Configuration* from) {
  const TokenTree::Node* const nodes = tree.nodes.data();
  const size_t count = tree.nodes.size();
  Configuration* const dead = automaton_.dead();
  path_[0] = from;
  for (size_t i = 0; i < count;) {
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

const Masks::Kept& Masks::keep(Configuration* from) {
  const auto known = kept_.find(from->number);
  if (known != kept_.end()) return known->second;
  Kept mask;
  found_.clear();
  // Looking for a run costs little where the first plain bytes already lead nowhere.
  const int run = free_run(from);
  const auto& slices = vocabulary_.slices();
  for (size_t i = 0; i < slices.size() && mask.slice < 0; ++i)
    if (run >= slices[i].max_chars) mask.slice = static_cast<int>(i);
  walk(mask.slice < 0 ? vocabulary_.tree() : slices[static_cast<size_t>(mask.slice)].others, from);
  if (found_.size() > vocabulary_.mask_words()) {
    mask.words =
        mask.slice < 0 ? std::vector<uint32_t>(vocabulary_.mask_words()) : slices[static_cast<size_t>(mask.slice)].bits;
    for (const int32_t token : found_) mask.words[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  } else {
    mask.tokens = found_;
  }
  if (kept_bytes_ + mask.bytes() > kMaxKeptBytes) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += mask.bytes();
  return kept_.emplace(from->number, std::move(mask)).first->second;
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
