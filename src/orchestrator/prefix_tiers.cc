#include "orchestrator/prefix_tiers.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ingot/llm.h"
#include "orchestrator/measured_steps.h"

namespace ingot {
namespace {

// Copied in a step, of each kind, while somebody reads along: a share of what the step takes, and where the copies come
// before its rows a fraction of a millisecond at most; some of them when nobody does.
constexpr double kShareBefore = 0.1, kShareBeside = 0.3;
// A turn of the work on files beside such steps: as much of one, and what a look at the clock is worth at least.
constexpr double kTurnShare = 0.1, kTurnUs = 100, kMostTurnUs = 2000;
constexpr double kFollow = 1.1;                   // how a copy's price follows what steps measure
constexpr size_t kStreamBytes = size_t{2} << 20;  // a huge page: memory's first touch may cost milliseconds for each
constexpr size_t kIdleBytes = size_t{64} << 20;

int64_t blocks_in(size_t bytes, size_t block_bytes) {
  return std::max<int64_t>(1, static_cast<int64_t>(bytes / block_bytes));
}

}  // namespace

PrefixTiers::PrefixTiers(Engine& engine, BlockHasher hasher, std::unique_ptr<BlockFolder> folder,
                         std::function<void(const std::string&)> warn)
    : hasher_(hasher) {
  const EngineLimits& limits = engine.limits();
  host_ = std::make_unique<HostTier>(limits.host_blocks, limits.block_size, folder != nullptr);
  counts_.host_blocks = limits.host_blocks;
  counts_.block_bytes = engine.host_block(0).size();
  stream_blocks_ = blocks_in(kStreamBytes, counts_.block_bytes);
  idle_blocks_ = blocks_in(kIdleBytes, counts_.block_bytes);
  move_us_ = measured_move_us(engine);
  moves_beside_ = limits.moves_beside;
  if (!folder) return;
  disk_ = std::make_unique<DiskTier>(
      std::move(folder), *host_, [&engine](int32_t block) { return engine.host_block(block); }, std::move(warn));
}

std::unique_ptr<PrefixTiers> PrefixTiers::open(Engine& engine, const LlmOptions& options) {
  if (!options.prefix_caching || engine.limits().host_blocks == 0) return std::make_unique<PrefixTiers>();
  const auto warn =
      options.warn ? options.warn : [](const std::string& line) { fmt::print(stderr, "ingot: {}\n", line); };
  BlockHasher hasher;
  std::unique_ptr<BlockFolder> folder;
  if (!options.prefix_dir.empty()) {
    try {
      folder = std::make_unique<BlockFolder>(options.prefix_dir, options.prefix_dir_bytes);
      const std::string identity = engine.identity(
          {.get = [&](const std::string& name) { return folder->note(name); },
           .set = [&](const std::string& name, const std::string& hash) { folder->set_note(name, hash); }});
      hasher = BlockHasher(folder->secret(), identity);
    } catch (const std::exception& error) {
      folder.reset();
      warn(fmt::format("--prefix-dir {}; the prefix cache is not kept there", error.what()));
    }
  }
  return std::make_unique<PrefixTiers>(engine, hasher, std::move(folder), warn);
}

void PrefixTiers::begin_step(bool streams, double step_us) {
  saves_left_ = loads_left_ = !streams ? idle_blocks_ : step_us > 0 ? blocks_beside(step_us) : stream_blocks_;
  leaving_left_ = idle_blocks_;
  // What computes the steps may be the cores that files are read on.
  if (disk_ && !moves_beside_)
    disk_->stand_back(!streams ? 0 : step_us > 0 ? std::clamp(kTurnShare * step_us, kTurnUs, kMostTurnUs) : kTurnUs);
}

int64_t PrefixTiers::blocks_beside(double step_us) const {
  const double most_us = (moves_beside_ ? kShareBeside : kShareBefore) * step_us;
  return std::clamp<int64_t>(static_cast<int64_t>(most_us / std::max(move_us_, 1.0)), 1,
                             moves_beside_ ? idle_blocks_ : stream_blocks_);
}

void PrefixTiers::save(int32_t block, const BlockContent& content, bool gently) {
  const int32_t host_block = host_->reserve(content, gently);
  if (host_block >= 0) saves_.push_back({block, host_block});
}

void PrefixTiers::leaving(int32_t block, const BlockContent& content) {
  if (!host_) return;
  if (leaving_left_-- > 0)
    save(block, content, false);
  else
    ++counts_.lost;
}

void PrefixTiers::filled(int32_t block, const BlockHash& hash) {
  if (disk_ && disk_->writing()) unsaved_.emplace_back(block, hash);
}

void PrefixTiers::save_filled(const BlockPool& pool) {
  if (disk_ && !disk_->writing()) unsaved_.clear();
  while (!unsaved_.empty() && saves_left_ > 0) {
    const auto [block, hash] = unsaved_.front();
    const std::optional<BlockContent> content = pool.content(block);
    const bool there = content && content->hash == hash;  // else it left, and was saved then
    if (there && !host_->has_room()) return;
    unsaved_.pop_front();
    if (!there) continue;
    save(block, *content, true);
    --saves_left_;
  }
}

void PrefixTiers::load(int32_t host_block, int32_t block) {
  --loads_left_;
  // A block that changed hands before the step is under way is the last one's.
  const auto earlier = std::ranges::find(loads_, block, &BlockCopy::to);
  if (earlier != loads_.end()) {
    release(earlier->from);
    loads_.erase(earlier);
  }
  loads_.push_back({host_block, block});
}

void PrefixTiers::give_moves(Step& step) {
  step.block_saves = std::exchange(saves_, {});
  step.block_loads = std::exchange(loads_, {});
}

void PrefixTiers::finish(const Step& step, bool good) {
  for (const BlockCopy& load : step.block_loads) release(load.from);
  for (const BlockCopy& save : step.block_saves) {
    if (!good) {
      host_->drop(save.to);
      continue;
    }
    host_->keep(save.to, false);
    release(save.to);
  }
  if (!good) return;
  counts_.loaded_blocks += step.block_loads.size();
  counts_.saved_blocks += step.block_saves.size();
  if (disk_ && !step.block_saves.empty()) disk_->wake();
}

// Before there was any work copies were measured of memory that was warm; those of steps find it cold, or touch it for
// the first time. Follows their median by small steps: one that was held up by something else moves it no further.
void PrefixTiers::learn_price(size_t blocks, double us) {
  if (blocks == 0 || us <= 0) return;
  const double each_us = us / static_cast<double>(blocks);
  move_us_ = move_us_ <= 0 ? each_us : move_us_ * (each_us > move_us_ ? kFollow : 1 / kFollow);
}

void PrefixTiers::forget_device() {
  for (const BlockCopy& save : std::exchange(saves_, {})) host_->drop(save.to);
  for (const BlockCopy& load : std::exchange(loads_, {})) release(load.from);
  unsaved_.clear();
}

std::shared_ptr<BlockLookup> PrefixTiers::look(int64_t first, std::span<const BlockHash> hashes,
                                               std::span<const int32_t> tokens) {
  if (!disk_) return nullptr;
  auto lookup = std::make_shared<BlockLookup>(*host_, first, std::vector(hashes.begin(), hashes.end()),
                                              std::vector(tokens.begin(), tokens.end()));
  disk_->look(lookup);
  return lookup;
}

void PrefixTiers::wait(std::chrono::microseconds most) {
  if (disk_ && (disk_->looking() || !unsaved_.empty())) disk_->wait_for_any(most);
}

PrefixTierCounts PrefixTiers::counts() const {
  PrefixTierCounts counts = counts_;
  if (host_) {
    counts.host_kept = host_->kept();
    counts.lost += host_->lost();
  }
  return counts;
}

void PrefixTiers::check(std::vector<std::string>& faults) const {
  if (host_) host_->check(faults);
}

}  // namespace ingot
