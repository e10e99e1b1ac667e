#include "orchestrator/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ingot {

BlockPool::BlockPool(int64_t num_blocks, int64_t block_size, Leaving leaving)
    : block_size_(block_size),
      leaving_(std::move(leaving)),
      blocks_(static_cast<size_t>(num_blocks)),
      tokens_(static_cast<size_t>(num_blocks * block_size), -1),
      queue_(num_blocks) {
  for (int32_t block = 0; block < num_blocks; ++block) enqueue(block);
}

void BlockPool::enqueue(int32_t block) {
  queue_.append(block);
  ++free_count_;
  cached_count_ += blocks_[block].remembered;
}

void BlockPool::dequeue(int32_t block) {
  queue_.remove(block);
  --free_count_;
  cached_count_ -= blocks_[block].remembered;
}

void BlockPool::forget(int32_t block) {
  Block& b = blocks_[block];
  if (!b.remembered) return;
  by_hash_.erase(b.hash);
  b.remembered = false;
}

int32_t BlockPool::allocate() {
  const int32_t block = queue_.first();
  if (block < 0) return -1;
  dequeue(block);
  if (leaving_ && blocks_[block].remembered) leaving_(block, *content(block));
  forget(block);
  blocks_[block].holders = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  if (blocks_[block].holders++ == 0) dequeue(block);
}

void BlockPool::release(int32_t block) {
  if (--blocks_[block].holders == 0) enqueue(block);
}

void BlockPool::release_all(std::vector<int32_t>& blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) release(*it);
  blocks.clear();
}

int32_t BlockPool::find(const BlockContent& wanted) const {
  const auto found = by_hash_.find(wanted.hash);
  if (found == by_hash_.end()) return -1;
  return std::ranges::equal(wanted.tokens, content(found->second)->tokens) ? found->second : -1;
}

bool BlockPool::remember(int32_t block, const BlockContent& content) {
  if (!by_hash_.try_emplace(content.hash, block).second) return false;
  Block& b = blocks_[block];
  b.remembered = true;
  b.hash = content.hash;
  b.position = content.position;
  std::ranges::copy(content.tokens, tokens_.begin() + block * block_size_);
  return true;
}

std::optional<BlockContent> BlockPool::content(int32_t block) const {
  const Block& b = blocks_[block];
  if (!b.remembered) return std::nullopt;
  return BlockContent{
      b.hash, b.position,
      std::span(tokens_).subspan(static_cast<size_t>(block * block_size_), static_cast<size_t>(block_size_))};
}

void BlockPool::forget_all() {
  by_hash_.clear();
  for (Block& b : blocks_) b.remembered = false;
  cached_count_ = 0;
}

void BlockPool::check(std::vector<std::string>& faults) const {
  const std::vector<bool> queued = queue_.check("block", faults);
  if (const int64_t count = std::ranges::count(queued, true); count != free_count_)
    faults.push_back(fmt::format("the free queue has {} blocks, {} are counted", count, free_count_));
  int64_t remembered = 0, cached = 0;
  for (int32_t block = 0; block < size(); ++block) {
    const Block& b = blocks_[block];
    if (b.holders < 0) faults.push_back(fmt::format("block {}: {} holders", block, b.holders));
    if (queued[block] != (b.holders == 0))
      faults.push_back(fmt::format("block {}: {} holders, but {} the free queue", block, b.holders,
                                   queued[block] ? "in" : "not in"));
    if (!b.remembered) continue;
    ++remembered;
    cached += b.holders == 0;
    const auto found = by_hash_.find(b.hash);
    if (found == by_hash_.end() || found->second != block)
      faults.push_back(fmt::format("block {}: its content is not found under its hash", block));
  }
  if (remembered != static_cast<int64_t>(by_hash_.size()))
    faults.push_back(fmt::format("{} hashes lead to {} remembered blocks", by_hash_.size(), remembered));
  if (cached != cached_count_)
    faults.push_back(fmt::format("{} free blocks have known content, {} are counted", cached, cached_count_));
}

}  // namespace ingot
