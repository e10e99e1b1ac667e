#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ingot/engine.h"
#include "ingot/llm.h"
#include "ingot/step_builder.h"
#include "orchestrator/block_pool.h"
#include "orchestrator/drafter.h"
#include "orchestrator/pacer.h"

namespace ingot {

class DraftModel;

// What the draft model has computed of one sequence. It lives as long as the sequence does.
struct DraftCache {
  explicit DraftCache(DraftModel& owner);
  ~DraftCache();
  DraftCache(const DraftCache&) = delete;
  DraftCache& operator=(const DraftCache&) = delete;

  DraftModel& model;
  std::vector<int32_t> tokens;  // whose K and V are in the blocks; the last may be guesses
  int64_t agreed = 0;           // of them, the sequence's own
  std::vector<int32_t> blocks;
  int64_t remembered = 0;  // blocks told to the pool
  uint64_t used = 0;       // when it last was: a count
};

// Guesses what a small model says next, greedily: one step of its engine gives all sequences their next token. It has
// blocks of its own; what it computed of guesses that failed is overwritten by what came instead.
class DraftModel : public Drafter {
 public:
  // `vocab`: of the model that is guessed for.
  DraftModel(std::unique_ptr<Engine> engine, int64_t vocab);
  ~DraftModel() override;

  void offer(Guess& guess, int32_t most) override;
  void fill(std::span<Guess> guesses) override;
  double token_us(int32_t sequences) const override;
  double begin_us(const Sequence& sequence) const override;

  struct Counts {
    uint64_t steps = 0;
    double seconds = 0;
  };
  const Counts& counts() const { return counts_; }
  // Appends a line for each fault of its blocks.
  void check(std::vector<std::string>& faults) const;

 private:
  friend struct DraftCache;
  // A guess that is being made.
  struct Line {
    Guess* guess;
    DraftCache* cache;
    std::vector<int32_t> rows;  // to be computed next: text that is new here, then the newest guess
    int32_t count = 0;          // of them, in this step
    bool done = false;
  };

  void measure();
  bool begin(Line& line);
  void find_prefix(const Sequence& sequence, DraftCache& cache);
  void remember_blocks(const Sequence& sequence, DraftCache& cache);
  bool extend_blocks(DraftCache& cache, int64_t length);
  void release(DraftCache& cache);
  void run(const std::vector<Line*>& lines);

  const std::unique_ptr<Engine> engine_;
  const EngineLimits& limits_;
  const int64_t vocab_;
  BlockPool pool_;
  StepBuilder builder_;
  Pacer pacer_;
  std::vector<DraftCache*> caches_;
  uint64_t uses_ = 0;
  int failures_ = 0;    // in a row
  int64_t offers_ = 0;  // since one was taken
  Counts counts_;
};

// The engine of LlmOptions::draft_model beside `target`. Throws Error: declined where its tokens are not the target's.
std::unique_ptr<Engine> load_draft_engine(const LlmOptions& options, const Engine& target,
                                          const Tokenizer* target_tokenizer);

}  // namespace ingot
