#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ingot {

// Identity of a full block: its tokens and, through the chain, every token before it. 128 bits under a key drawn at
// random for the process, so that nobody can prepare two prompts that meet.
struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

// The hash of a block whose predecessor has `parent`; the first block of a sequence has the parent {}.
BlockHash chain_hash(const BlockHash& parent, std::span<const int32_t> tokens);

// The hash of a text that separates those who may not share blocks: salted(parent, salt) begins their chains.
BlockHash salt_hash(std::string_view text);
inline BlockHash salted(const BlockHash& parent, const BlockHash& salt) {
  return {parent.low ^ salt.low, parent.high ^ salt.high};
}

struct BlockHashHasher {
  size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash.low); }
};

}  // namespace ingot
