#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ingot/engine.h"
#include "ingot/step.h"
#include "orchestrator/block_pool.h"
#include "prefix/block_folder.h"
#include "prefix/block_hash.h"
#include "prefix/disk_tier.h"
#include "prefix/host_tier.h"

namespace ingot {

struct LlmOptions;

struct PrefixTierCounts {
  int64_t host_blocks = 0, host_kept = 0;  // in all, with content
  uint64_t saved_blocks = 0, loaded_blocks = 0;
  uint64_t block_bytes = 0;
  uint64_t lost = 0;  // blocks that had to make room before they were anywhere else
};

// Where blocks go when they leave the device, and come from when they are not there: host memory, then files. Collects
// the saves and loads of the step that is being scheduled; a few a step, so that streams keep their pace.
//
// With files every block is saved once it is full, and written while there is nothing else to read: a process that is
// killed loses what it did last. Without, blocks are saved when their place is needed.
class PrefixTiers {
 public:
  PrefixTiers() = default;  // the device alone
  // `folder` may be null. `warn`: told in one line when it has to be given up.
  PrefixTiers(Engine& engine, BlockHasher hasher, std::unique_ptr<BlockFolder> folder,
              std::function<void(const std::string&)> warn);
  // As the options say. A folder that cannot be used is left alone, and options.warn told why.
  static std::unique_ptr<PrefixTiers> open(Engine& engine, const LlmOptions& options);

  const BlockHasher& hasher() const { return hasher_; }

  // ---- a step being scheduled ----
  // `streams`: somebody reads along, so that only a share of `step_us` may go into copies, which is what their step
  // takes; 0: not known.
  void begin_step(bool streams, double step_us);
  // The block's content will be overwritten by this step or a later one.
  void leaving(int32_t block, const BlockContent& content);
  // A block that the step being scheduled, or an earlier one, fills: it is saved by a later one.
  void filled(int32_t block, const BlockHash& hash);
  void save_filled(const BlockPool& pool);
  // Something is to be saved, or its step is yet to come.
  bool has_unsaved() const { return !unsaved_.empty() || has_moves(); }

  // The host block with this content, held until release() or the end of the step that loads it; -1: none.
  int32_t hold(const BlockContent& content) { return host_ ? host_->hold(content) : -1; }
  void release(int32_t host_block) { host_->release(host_block); }
  // A sequence's first blocks were found on the device or in host memory: files of them must not age meanwhile.
  void used(std::span<const BlockHash> hashes) {
    if (disk_) disk_->used(hashes);
  }
  bool may_load() const { return loads_left_ > 0; }
  void load(int32_t host_block, int32_t block);

  bool has_moves() const { return !saves_.empty() || !loads_.empty(); }
  void give_moves(Step& step);
  // The step has been waited for; without `good` nobody knows what its saves contain.
  void finish(const Step& step, bool good);
  // So many blocks were copied before a step's rows, in so long.
  void learn_price(size_t blocks, double us);
  // Nobody knows what the device's blocks contain.
  void forget_device();

  // ---- files ----
  // Looks for the blocks from `first` on; null: there is no folder.
  std::shared_ptr<BlockLookup> look(int64_t first, std::span<const BlockHash> hashes, std::span<const int32_t> tokens);
  // With nothing else to do: until a lookup or a write is done, at most so long.
  void wait(std::chrono::microseconds most);

  PrefixTierCounts counts() const;
  // From any thread: files are written while no step runs, too.
  DiskCounts disk_counts() const { return disk_ ? disk_->counts() : DiskCounts(); }
  void check(std::vector<std::string>& faults) const;

 private:
  int64_t blocks_beside(double step_us) const;
  void save(int32_t block, const BlockContent& content, bool gently);

  BlockHasher hasher_;
  std::unique_ptr<HostTier> host_;
  std::unique_ptr<DiskTier> disk_;
  int64_t stream_blocks_ = 0, idle_blocks_ = 0;  // that may be copied in a step
  double move_us_ = 0;                           // that a copy takes, by what was measured
  bool moves_beside_ = false;
  int64_t saves_left_ = 0, leaving_left_ = 0, loads_left_ = 0;
  std::vector<BlockCopy> saves_, loads_;               // of the next step
  std::deque<std::pair<int32_t, BlockHash>> unsaved_;  // filled blocks, oldest first
  PrefixTierCounts counts_;
};

}  // namespace ingot
