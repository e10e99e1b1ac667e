#include "prefix/host_tier.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

constexpr int kLooked = 64;  // blocks looked at for one whose content is nobody's loss

}  // namespace

HostTier::HostTier(int64_t blocks, int64_t block_size, bool written_further)
    : block_size_(block_size),
      written_further_(written_further),
      blocks_(static_cast<size_t>(blocks)),
      tokens_(static_cast<size_t>(blocks * block_size), -1),
      queue_(blocks) {
  for (int32_t block = 0; block < blocks; ++block) queue_.append(block);
}

std::span<int32_t> HostTier::tokens_of(int32_t block) {
  return std::span(tokens_).subspan(static_cast<size_t>(block * block_size_), static_cast<size_t>(block_size_));
}

void HostTier::forget(int32_t block) {
  Block& b = blocks_[block];
  if (b.known) by_hash_.erase(b.hash);
  unwritten_count_ -= b.unwritten;
  b.known = b.filled = b.unwritten = false;
}

int32_t HostTier::find_room(bool gently) const {
  int looked = 0;
  for (int32_t block = queue_.first(); block >= 0 && looked < kLooked; block = queue_.after(block), ++looked)
    if (!blocks_[block].unwritten) return block;
  return gently ? -1 : queue_.first();
}

int32_t HostTier::reserve(const BlockContent& content, bool gently) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_hash_.find(content.hash); found != by_hash_.end()) {
    if (blocks_[found->second].holders == 0) {  // used now
      queue_.remove(found->second);
      queue_.append(found->second);
    }
    return -1;
  }
  const int32_t block = find_room(gently);
  if (block < 0) return -1;
  lost_ += blocks_[block].unwritten;
  queue_.remove(block);
  forget(block);
  Block& b = blocks_[block];
  b.holders = 1;
  b.known = true;
  b.hash = content.hash;
  b.position = content.position;
  std::ranges::copy(content.tokens, tokens_of(block).begin());
  by_hash_.emplace(content.hash, block);
  return block;
}

void HostTier::keep(int32_t block, bool written) {
  const std::lock_guard lock(mutex_);
  Block& b = blocks_[block];
  b.filled = true;
  b.unwritten = written_further_ && !written;
  if (!b.unwritten) return;
  unwritten_.emplace_back(block, b.hash);
  ++unwritten_count_;
}

void HostTier::drop(int32_t block) {
  const std::lock_guard lock(mutex_);
  forget(block);
  blocks_[block].holders = 0;
  queue_.append(block);
}

int32_t HostTier::hold(const BlockContent& content) {
  const std::lock_guard lock(mutex_);
  const auto found = by_hash_.find(content.hash);
  if (found == by_hash_.end()) return -1;
  Block& b = blocks_[found->second];
  if (!b.filled || !std::ranges::equal(content.tokens, tokens_of(found->second))) return -1;
  if (b.holders++ == 0) queue_.remove(found->second);
  return found->second;
}

void HostTier::release(int32_t block) {
  const std::lock_guard lock(mutex_);
  if (--blocks_[block].holders == 0) queue_.append(block);
}

std::optional<HostTier::Unwritten> HostTier::take_unwritten() {
  const std::lock_guard lock(mutex_);
  while (!unwritten_.empty()) {
    const auto [block, hash] = unwritten_.front();
    unwritten_.pop_front();
    Block& b = blocks_[block];
    if (!b.unwritten || b.hash != hash) continue;
    if (b.holders++ == 0) queue_.remove(block);
    const std::span<const int32_t> tokens = tokens_of(block);
    return Unwritten{block, b.hash, b.position, {tokens.begin(), tokens.end()}};
  }
  return std::nullopt;
}

void HostTier::set_written(int32_t block) {
  const std::lock_guard lock(mutex_);
  Block& b = blocks_[block];
  unwritten_count_ -= b.unwritten;
  b.unwritten = false;
}

void HostTier::stop_writing() {
  const std::lock_guard lock(mutex_);
  written_further_ = false;
  unwritten_.clear();
  unwritten_count_ = 0;
  for (Block& b : blocks_) b.unwritten = false;
}

size_t HostTier::unwritten() const {
  const std::lock_guard lock(mutex_);
  return unwritten_count_;
}

int64_t HostTier::kept() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(by_hash_.size());
}

uint64_t HostTier::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

bool HostTier::has_room() const {
  const std::lock_guard lock(mutex_);
  return find_room(true) >= 0;
}

void HostTier::check(std::vector<std::string>& faults) const {
  const std::lock_guard lock(mutex_);
  const std::vector<bool> queued = queue_.check("host block", faults);
  size_t known = 0, unwritten = 0;
  for (int32_t block = 0; block < size(); ++block) {
    const Block& b = blocks_[block];
    if (queued[block] != (b.holders == 0))
      faults.push_back(fmt::format("host block {}: {} holders, but {} the queue", block, b.holders,
                                   queued[block] ? "in" : "not in"));
    known += b.known;
    unwritten += b.unwritten;
    if (b.known && !b.filled && b.holders != 1)
      faults.push_back(fmt::format("host block {}: being filled by {}", block, b.holders));
    const auto found = b.known ? by_hash_.find(b.hash) : by_hash_.end();
    if (b.known && (found == by_hash_.end() || found->second != block))
      faults.push_back(fmt::format("host block {}: its content is not found under its hash", block));
  }
  if (known != by_hash_.size())
    faults.push_back(fmt::format("{} hashes lead to {} host blocks", by_hash_.size(), known));
  if (unwritten != unwritten_count_)
    faults.push_back(fmt::format("{} host blocks are to be written, {} are counted", unwritten, unwritten_count_));
}

}  // namespace ingot
