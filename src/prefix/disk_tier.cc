#include "prefix/disk_tier.h"

#include <chrono>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/threads.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLastWrites{10};  // before the process ends
constexpr std::chrono::minutes kTouchedFor{5};   // a file that was touched
constexpr size_t kMostTouched = 1 << 15;         // that are remembered, in some 70 bytes each

}  // namespace

BlockLookup::BlockLookup(HostTier& host, int64_t first, std::vector<BlockHash> hashes, std::vector<int32_t> tokens)
    : host_(host), first_(first), hashes_(std::move(hashes)), tokens_(std::move(tokens)) {}

BlockLookup::~BlockLookup() {
  for (const int32_t block : held_) host_.release(block);
}

BlockContent BlockLookup::content(size_t i) const {
  const size_t block_size = tokens_.size() / hashes_.size();
  return {hashes_[i], first_ + static_cast<int64_t>(i), std::span(tokens_).subspan(i * block_size, block_size)};
}

DiskTier::DiskTier(std::unique_ptr<BlockFolder> folder, HostTier& host,
                   std::function<std::span<std::byte>(int32_t)> bytes_of, std::function<void(const std::string&)> warn)
    : folder_(std::move(folder)), host_(host), bytes_of_(std::move(bytes_of)), warn_(std::move(warn)) {
  folder_->set_rest([this] { spare_.rest(); });
  thread_ = std::thread([this] { run(); });
}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  spare_.limit(0);
  changed_.notify_one();
  thread_.join();
}

void DiskTier::look(std::shared_ptr<BlockLookup> lookup) {
  {
    const std::lock_guard lock(mutex_);
    lookups_.push_back(std::move(lookup));
  }
  changed_.notify_one();
}

void DiskTier::wake() {
  {
    const std::lock_guard lock(mutex_);
  }
  changed_.notify_one();
}

void DiskTier::used(std::span<const BlockHash> hashes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto now = Clock::now(); now - touched_since_ > kTouchedFor || touched_.size() > kMostTouched) {
      touched_.clear();
      touched_since_ = now;
    }
    for (size_t i = 0; i < hashes.size(); ++i)
      if (touched_.insert(hashes[i]).second) untouched_.emplace_back(hashes[i], static_cast<int64_t>(i));
    if (untouched_.empty()) return;
  }
  changed_.notify_one();
}

void DiskTier::wait_for_any(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  progressed_.wait_for(lock, most, [this, before = progress_] {
    return progress_ != before || (lookups_.empty() && host_.unwritten() == 0);
  });
}

bool DiskTier::looking() const {
  const std::lock_guard lock(mutex_);
  return !lookups_.empty();
}

DiskCounts DiskTier::counts() const {
  const std::lock_guard lock(mutex_);
  DiskCounts counts = counts_;
  counts.writing = writing_;
  return counts;
}

void DiskTier::run() {
  // Answers that are being computed come first.
  lower_thread_priority();
  folder_->trim();
  std::optional<Clock::time_point> deadline;
  for (;;) {
    std::shared_ptr<BlockLookup> lookup;
    {
      std::unique_lock lock(mutex_);
      counts_.bytes = folder_->bytes();
      changed_.wait(lock,
                    [this] { return stop_ || !lookups_.empty() || host_.unwritten() > 0 || !untouched_.empty(); });
      if (stop_ && !deadline) deadline = Clock::now() + kLastWrites;
      if (stop_ && (host_.unwritten() == 0 || Clock::now() > *deadline)) break;
      if (!lookups_.empty()) lookup = lookups_.front();
    }
    if (lookup)
      serve(*lookup);
    else if (const std::optional<HostTier::Unwritten> block = host_.take_unwritten())
      write(*block);
    else
      touch_files();
    {
      const std::lock_guard lock(mutex_);
      if (lookup) {
        lookups_.pop_front();
        lookup->done_.store(true, std::memory_order_release);
      }
      ++progress_;
    }
    progressed_.notify_all();
  }
  for (const auto& lookup : lookups_) lookup->done_.store(true, std::memory_order_release);
}

void DiskTier::touch_files() {
  std::vector<std::pair<BlockHash, int64_t>> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(untouched_);
  }
  for (const auto& [hash, position] : blocks) {
    folder_->touch({hash, position, {}});
    spare_.rest();
  }
}

// Reads up to the first block that is neither in host memory nor in a file.
void DiskTier::serve(BlockLookup& lookup) {
  for (size_t i = 0; i < lookup.hashes_.size() && !lookup.cancelled_; ++i) {
    const BlockContent content = lookup.content(i);
    if (const int32_t held = host_.hold(content); held >= 0) {
      lookup.held_.push_back(held);
      continue;
    }
    const int32_t block = host_.reserve(content);
    if (block < 0) return;
    const std::span<std::byte> bytes = bytes_of_(block);
    const BlockFolder::Found found = folder_->read(content, bytes);
    if (found != BlockFolder::Found::yes) {
      host_.drop(block);
      const std::lock_guard lock(mutex_);
      counts_.damaged += found == BlockFolder::Found::damaged;
      return;
    }
    host_.keep(block, true);
    lookup.held_.push_back(block);
    ++lookup.read_;
    const std::lock_guard lock(mutex_);
    ++counts_.read_blocks;
    counts_.read_bytes += bytes.size();
  }
}

// What the block's state tells (nothing is left to write) is told last: who waits for it finds all else done.
void DiskTier::write(const HostTier::Unwritten& block) {
  const std::span<const std::byte> bytes = bytes_of_(block.block);
  try {
    folder_->write({block.hash, block.position, block.tokens}, bytes);
    {
      const std::lock_guard lock(mutex_);
      ++counts_.written_blocks;
      counts_.written_bytes += bytes.size();
    }
    host_.set_written(block.block);
  } catch (const Error& error) {
    writing_ = false;
    warn_(std::string(error.what()) + "; no more of the prefix cache is kept there");
    host_.stop_writing();
  }
  host_.release(block.block);
}

}  // namespace ingot
