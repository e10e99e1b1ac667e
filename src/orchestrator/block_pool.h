#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "prefix/block_hash.h"
#include "prefix/block_queue.h"

namespace ingot {

// The numbers of the engine's KV blocks: who holds them, and what the full ones contain. A block nobody holds keeps its
// content until it is needed again, the least recently used first: that is the prefix cache.
class BlockPool {
 public:
  // `leaving`: told of the content that a block loses because the block is needed.
  using Leaving = std::function<void(int32_t block, const BlockContent& content)>;
  BlockPool(int64_t num_blocks, int64_t block_size, Leaving leaving = {});

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t free() const { return free_count_; }  // held by nobody, cached ones included
  int64_t used() const { return size() - free_count_; }
  int64_t cached() const { return cached_count_; }  // held by nobody, with known content
  int32_t holders(int32_t block) const { return blocks_[block].holders; }

  // A block held once, its content unknown; -1 when every block is held.
  int32_t allocate();
  // One more holder of a block.
  void share(int32_t block);
  // One holder less. The last one puts it at the end of the queue of free blocks.
  void release(int32_t block);
  // Releases a sequence's blocks, the last first: the beginning of a sequence is worth keeping longest.
  void release_all(std::vector<int32_t>& blocks);

  // The block with this content, or -1. Compares the tokens too, not only the hash.
  int32_t find(const BlockContent& content) const;
  // Records the content of a held block; false: another block has the same content already.
  bool remember(int32_t block, const BlockContent& content);
  // What is recorded of a block; none: nothing.
  std::optional<BlockContent> content(int32_t block) const;
  // Forgets the content of a block that is about to be written.
  void forget(int32_t block);
  // Forgets all content, after a step failed and nobody knows what was written.
  void forget_all();

  // Appends a line for each fault: list, counts and hashes that contradict each other.
  void check(std::vector<std::string>& faults) const;

 private:
  struct Block {
    int32_t holders = 0;
    bool remembered = false;
    BlockHash hash;
    int64_t position = 0;
  };

  void enqueue(int32_t block);
  void dequeue(int32_t block);

  int64_t block_size_;
  Leaving leaving_;
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;  // [blocks][block_size] of remembered blocks
  std::unordered_map<BlockHash, int32_t, BlockHashHasher> by_hash_;
  BlockQueue queue_;  // free blocks, the least recently used first
  int64_t free_count_ = 0;
  int64_t cached_count_ = 0;  // of the free blocks
};

}  // namespace ingot
