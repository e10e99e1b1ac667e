#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

namespace ingot::grammar {

// Which tokens may follow a configuration: the tree of the vocabulary walked with the automaton. Masks of
// configurations that come back are kept, up to a number of bytes.
class Masks {
 public:
  Masks(Automaton& automaton, const Vocabulary& vocabulary);

  // Bit i of word i / 32 for token i. End tokens are set where the text may end.
  void fill(Configuration* from, std::span<uint32_t> bits);
  size_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }  // from any thread

 private:
  // A mask is a slice's bits (-1: none) and more tokens, or all its words.
  struct Kept {
    int slice = -1;
    std::vector<int32_t> tokens;
    std::vector<uint32_t> words;
    size_t bytes() const { return tokens.size() * sizeof(int32_t) + words.size() * sizeof(uint32_t) + 64; }
  };

  const Kept& keep(Configuration* from);
  void pack(Kept& mask) const;
  void walk_all(Configuration* from);
  void walk(const TokenTree& tree, size_t first, size_t last);
  bool is_free(Configuration* at);
  int free_run(Configuration* from);

  Automaton& automaton_;
  const Vocabulary& vocabulary_;
  std::unordered_map<uint32_t, Kept> kept_;  // by number of the configuration
  std::atomic<size_t> kept_bytes_ = 0;
  std::vector<Configuration*> path_;                   // of a walk
  std::vector<int32_t> found_;                         // tokens one by one,
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // and ranges of the vocabulary's plain tokens, in their order
};

}  // namespace ingot::grammar
