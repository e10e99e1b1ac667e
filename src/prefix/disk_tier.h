#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/spare_time.h"
#include "prefix/block_folder.h"
#include "prefix/block_hash.h"
#include "prefix/host_tier.h"

namespace ingot {

// Blocks of one sequence that are looked for in files. Those that were found are held in host memory while this lives.
class BlockLookup {
 public:
  // Blocks [first, first + hashes.size()) of a sequence with these tokens, [hashes][block_size].
  BlockLookup(HostTier& host, int64_t first, std::vector<BlockHash> hashes, std::vector<int32_t> tokens);
  ~BlockLookup();
  BlockLookup(const BlockLookup&) = delete;
  BlockLookup& operator=(const BlockLookup&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  int64_t read() const { return read_; }  // blocks that came from files; once it is done
  void cancel() { cancelled_ = true; }

 private:
  friend class DiskTier;
  BlockContent content(size_t i) const;

  HostTier& host_;
  const int64_t first_;
  const std::vector<BlockHash> hashes_;
  const std::vector<int32_t> tokens_;
  std::vector<int32_t> held_;  // host blocks
  int64_t read_ = 0;
  std::atomic<bool> cancelled_{false}, done_{false};
};

struct DiskCounts {
  uint64_t read_blocks = 0, read_bytes = 0;
  uint64_t written_blocks = 0, written_bytes = 0;
  uint64_t damaged = 0;  // blocks whose files were not what was written
  uint64_t bytes = 0;    // of all files, about
  bool writing = true;   // no write has failed
};

// The thread between host memory and files: reads what is looked for, and in between writes what host memory has that
// is in no file yet. The step loop never waits for it.
class DiskTier {
 public:
  // `bytes_of`: of a host block. `warn`: told once, in one line, when writing has to stop.
  DiskTier(std::unique_ptr<BlockFolder> folder, HostTier& host, std::function<std::span<std::byte>(int32_t)> bytes_of,
           std::function<void(const std::string&)> warn);
  ~DiskTier();  // writes on for a while if there is something left

  void look(std::shared_ptr<BlockLookup> lookup);
  void wake();  // there is something to write
  // Blocks [0, hashes.size()) of a sequence were found in memory: their files are worth as much as if they had been
  // read. A file is touched once in a while at most.
  void used(std::span<const BlockHash> hashes);
  bool writing() const { return writing_; }
  bool looking() const;
  // Answers are being computed beside which the thread must not be noticed: each turn of its work takes so long at
  // most, with longer pauses between. 0: there are none, or what computes them needs no core.
  void stand_back(double turn_us) { spare_.limit(turn_us); }
  // Waits until a lookup is done or a block was written, when there is something of either to do; at most so long.
  void wait_for_any(std::chrono::microseconds most);
  DiskCounts counts() const;

 private:
  void run();
  void serve(BlockLookup& lookup);
  void touch_files();
  void write(const HostTier::Unwritten& block);

  const std::unique_ptr<BlockFolder> folder_;
  HostTier& host_;
  const std::function<std::span<std::byte>(int32_t)> bytes_of_;
  const std::function<void(const std::string&)> warn_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, progressed_;
  std::deque<std::shared_ptr<BlockLookup>> lookups_;        // the first may be under way
  std::vector<std::pair<BlockHash, int64_t>> untouched_;    // blocks whose files are to be touched, with their places
  std::unordered_set<BlockHash, BlockHashHasher> touched_;  // since then: these need not be
  std::chrono::steady_clock::time_point touched_since_;
  uint64_t progress_ = 0;
  bool stop_ = false;
  DiskCounts counts_;
  std::atomic<bool> writing_{true};
  SpareTime spare_;  // the thread's
  std::thread thread_;
};

}  // namespace ingot
