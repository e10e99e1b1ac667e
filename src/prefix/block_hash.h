#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/digest.h"

namespace ingot {

// Identity of a full block: its tokens and, through the chain, every token before it. Computed under a key, so that
// nobody can prepare two prompts that meet, nor tell from a name what was said.
struct BlockHash {
  Digest bytes{};
  bool operator==(const BlockHash&) const = default;
};

// What a full block contains.
struct BlockContent {
  BlockHash hash;
  int64_t position = 0;             // among the blocks of its sequence
  std::span<const int32_t> tokens;  // [block_size]
};

class BlockHasher {
 public:
  // Under a key drawn for this process: nobody else has the same hashes.
  BlockHasher() : key_(random_secret()) {}
  // Whoever has the same secret and means the same by a block (`identity`: model, weights, device, ...) has the same.
  BlockHasher(const Digest& secret, std::string_view identity);

  // The hash of a block whose predecessor has `parent`; the first block of a sequence has the parent {}.
  BlockHash chain(const BlockHash& parent, std::span<const int32_t> tokens) const;
  // The hash of a text that separates those who may not share blocks: salted(parent, salt) begins their chains. That of
  // no text, {}, changes nothing.
  BlockHash salt(std::string_view text) const;
  BlockHash salted(const BlockHash& parent, const BlockHash& salt) const;

 private:
  Digest key_;
};

struct BlockHashHasher {
  size_t operator()(const BlockHash& hash) const {
    size_t value = 0;
    std::memcpy(&value, hash.bytes.data(), sizeof(value));
    return value;
  }
};

}  // namespace ingot
