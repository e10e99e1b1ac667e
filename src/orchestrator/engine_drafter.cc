#include "orchestrator/engine_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/ceil_div.h"
#include "orchestrator/measured_steps.h"

namespace ingot {
namespace {

constexpr double kOld = 1 << 16;  // offers that nobody took, until what was measured would count for nothing
constexpr int kMostFailures = 3;  // in a row; then it is left alone

}  // namespace

DraftBlocks::DraftBlocks(EngineDrafter& owner) : drafter(owner) { drafter.caches_.push_back(this); }

DraftBlocks::~DraftBlocks() {
  drafter.pool_.release_all(blocks);
  std::erase(drafter.caches_, this);
}

// What steps take is measured before anybody waits for one: a price that is wrong at first would never be corrected.
EngineDrafter::EngineDrafter(std::string_view name, std::unique_ptr<Engine> engine, int64_t vocab)
    : name_(name),
      engine_(std::move(engine)),
      limits_(engine_->limits()),
      vocab_(vocab),
      pool_(limits_.num_blocks, limits_.block_size),
      builder_(limits_.block_size),
      pacer_(0, limits_.max_seqs, limits_.max_step_tokens) {
  const int64_t given_width = limits_.reads_width > 0 ? limits_.state_width : 0;  // a head reads what it gave
  const auto most = std::min<int64_t>({limits_.max_seqs, limits_.num_blocks, Pacer::kMostRows});
  for (int32_t sequences = 1; sequences <= most; sequences *= 2)
    pacer_.learn_rows(sequences, measured_step_us(*engine_, sequences, 1, true, given_width));
}

double EngineDrafter::token_us(int32_t sequences) const {
  const double age = std::max(0.5, 1 - static_cast<double>(offers_) / kOld);
  return sequences == 0 ? 0 : age * pacer_.rows_us(std::min(sequences, Pacer::kMostRows));
}

bool EngineDrafter::given_up() const { return failures_ >= kMostFailures; }

bool EngineDrafter::extend_blocks(DraftBlocks& cache, int64_t length) {
  const auto wanted = static_cast<size_t>(ceil_div(length, limits_.block_size));
  while (cache.blocks.size() < wanted) {
    if (const int32_t block = pool_.allocate(); block >= 0) {
      cache.blocks.push_back(block);
      continue;
    }
    DraftBlocks* oldest = nullptr;
    for (DraftBlocks* other : caches_)
      if (other->used != uses_ && !other->blocks.empty() && (oldest == nullptr || other->used < oldest->used))
        oldest = other;
    if (oldest == nullptr) return false;
    release(*oldest);
  }
  return true;
}

void EngineDrafter::release(DraftBlocks& cache) {
  pool_.release_all(cache.blocks);
  cache.forget();
}

void EngineDrafter::fail() {
  ++failures_;
  for (DraftBlocks* cache : caches_) release(*cache);
  pool_.forget_all();
}

void EngineDrafter::count_step(int32_t rows, bool reads, double seconds) {
  if (reads) {
    pacer_.learn(0, rows, seconds * 1e6);
    reading_us_ += seconds * 1e6;
  } else {
    pacer_.learn_rows(rows, seconds * 1e6);
  }
  ++counts_.steps;
  counts_.seconds += seconds;
}

void EngineDrafter::check(std::vector<std::string>& faults) const {
  pool_.check(faults);
  std::vector<int32_t> holders(static_cast<size_t>(pool_.size()), 0);
  for (const DraftBlocks* cache : caches_) {
    for (const int32_t block : cache->blocks) ++holders[static_cast<size_t>(block)];
    if (cache->filled() > std::ssize(cache->blocks) * limits_.block_size)
      faults.push_back(fmt::format("{}: {} positions in {} blocks", name_, cache->filled(), cache->blocks.size()));
    cache->check(faults);
  }
  for (int32_t block = 0; block < pool_.size(); ++block)
    if (holders[static_cast<size_t>(block)] != pool_.holders(block))
      faults.push_back(fmt::format("{}'s block {}: {} holders counted, {} tables have it", name_, block,
                                   pool_.holders(block), holders[static_cast<size_t>(block)]));
}

}  // namespace ingot
