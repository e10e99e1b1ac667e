#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/engine.h"
#include "ingot/step_builder.h"
#include "orchestrator/block_pool.h"
#include "orchestrator/drafter.h"
#include "orchestrator/pacer.h"

namespace ingot {

class EngineDrafter;

// What a drafter with an engine has computed of one sequence lies in these blocks. It lives as long as the sequence
// does.
struct DraftBlocks {
  explicit DraftBlocks(EngineDrafter& owner);
  virtual ~DraftBlocks();
  DraftBlocks(const DraftBlocks&) = delete;
  DraftBlocks& operator=(const DraftBlocks&) = delete;

  // Nothing is in the blocks any more.
  virtual void forget() = 0;
  // Positions that are in them.
  virtual int64_t filled() const = 0;
  // Appends a line for each fault beside those of the blocks.
  virtual void check(std::vector<std::string>& /*faults*/) const {}

  EngineDrafter& drafter;
  std::vector<int32_t> blocks;
  uint64_t used = 0;  // when it last was: a count
};

// Guesses by steps of an engine of its own, which has blocks of its own: a draft model, or a head. What it computed of
// guesses that failed is overwritten by what came instead.
class EngineDrafter : public Drafter {
 public:
  static constexpr int32_t kMostRead = 512;  // rows of a step: what is new must not hold up the streams

  bool shares() const override { return true; }
  double token_us(int32_t sequences) const override;
  double reading_us() const override { return reading_us_; }
  Counts counts() const override { return counts_; }
  void check(std::vector<std::string>& faults) const override;

 protected:
  static constexpr double kPrior = 0.6;  // the chance of a guess, for a sequence of which nothing is known

  // `name` is for faults; `vocab` of the model that is guessed for.
  EngineDrafter(std::string_view name, std::unique_ptr<Engine> engine, int64_t vocab);

  bool given_up() const;
  // Where there is no block, those of whoever guessed longest ago are taken.
  bool extend_blocks(DraftBlocks& cache, int64_t length);
  void release(DraftBlocks& cache);
  // A step failed: what any block contains is unknown.
  void fail();
  // A step was waited for; `reads`: it had more than a few rows of a text.
  void count_step(int32_t rows, bool reads, double seconds);

  const std::string name_;
  const std::unique_ptr<Engine> engine_;
  const EngineLimits& limits_;
  const int64_t vocab_;
  BlockPool pool_;
  StepBuilder builder_;
  Pacer pacer_;
  uint64_t uses_ = 0;
  int failures_ = 0;       // in a row
  int64_t offers_ = 0;     // since one was taken
  double reading_us_ = 0;  // of the last fill()

 private:
  friend struct DraftBlocks;

  std::vector<DraftBlocks*> caches_;
  Counts counts_;
};

}  // namespace ingot
