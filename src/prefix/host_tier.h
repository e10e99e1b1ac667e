#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "prefix/block_hash.h"
#include "prefix/block_queue.h"

namespace ingot {

// The blocks of host memory: what they contain, and who is at work on them. Blocks that nobody holds keep their content
// until they are needed, the least recently used first. Of any thread; the bytes themselves are elsewhere.
//
//   empty ── reserve ─▶ being filled ── keep ─▶ kept ── hold, release ... ─▶ reserved again
class HostTier {
 public:
  // `written_further`: blocks are to be written to files, so those that are not yet are worth more.
  HostTier(int64_t blocks, int64_t block_size, bool written_further);

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t kept() const;   // blocks with content
  uint64_t lost() const;  // that made room before they were written
  bool has_room() const;  // for content, at nobody's cost

  // A block to fill with this content, held by the caller; -1: it is here or being filled already, or no block can be
  // had. `gently`: only one whose content is nobody's loss.
  int32_t reserve(const BlockContent& content, bool gently = false);
  // It is filled: from now on others find it. Still held.
  void keep(int32_t block, bool written);
  // It was not. No longer held.
  void drop(int32_t block);

  // The block with this content, held by the caller; -1: none.
  int32_t hold(const BlockContent& content);
  void release(int32_t block);

  // The oldest block that is to be written to a file, held by the caller.
  struct Unwritten {
    int32_t block = -1;
    BlockHash hash;
    int64_t position = 0;
    std::vector<int32_t> tokens;
  };
  std::optional<Unwritten> take_unwritten();
  void set_written(int32_t block);
  size_t unwritten() const;
  // Nothing will be written any more.
  void stop_writing();

  // Appends a line for each fault.
  void check(std::vector<std::string>& faults) const;

 private:
  struct Block {
    int32_t holders = 0;
    bool known = false;  // it has, or is to have, content
    bool filled = false;
    bool unwritten = false;
    BlockHash hash;
    int64_t position = 0;
  };

  void forget(int32_t block);
  int32_t find_room(bool gently) const;
  std::span<int32_t> tokens_of(int32_t block);

  const int64_t block_size_;
  mutable std::mutex mutex_;
  bool written_further_;
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;  // [blocks][block_size]
  std::unordered_map<BlockHash, int32_t, BlockHashHasher> by_hash_;
  std::deque<std::pair<int32_t, BlockHash>> unwritten_;  // by age; some are no more
  size_t unwritten_count_ = 0;
  BlockQueue queue_;  // of those that nobody holds, the least recently used first
  uint64_t lost_ = 0;
};

}  // namespace ingot
