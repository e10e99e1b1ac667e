#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
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
  bool shares() const override { return true; }
  double token_us(int32_t sequences) const override;
  double begin_us(const Sequence& sequence) const override;
  double reading_us() const override { return reading_us_; }

  Counts counts() const override { return counts_; }
  void check(std::vector<std::string>& faults) const override;

 private:
  friend struct DraftCache;
  // A guess that is being made.
  struct Line {
    Guess* guess = nullptr;
    DraftCache* cache = nullptr;
    std::vector<int32_t> rows;  // text that is new here
    int32_t asked = 0;          // tokens that steps submitted so far guess
    int32_t output = -1;        // where the newest is among the outputs of the step submitted last
  };
  // A step on its way. The next is submitted before it has ended, and names what it guesses by its rows.
  struct Flight {
    std::vector<Line*> lines;  // of its outputs
    int32_t rows = 0;
    bool reads = false;  // more than a few rows of a text
  };

  void measure();
  bool begin(Line& line);
  void find_prefix(const Sequence& sequence, DraftCache& cache);
  void remember_blocks(const Sequence& sequence, DraftCache& cache);
  bool extend_blocks(DraftCache& cache, int64_t length);
  void release(DraftCache& cache);
  std::optional<Flight> submit_text(std::vector<Line>& lines);
  std::optional<Flight> submit_guesses(std::vector<Line>& lines);
  Flight submit(std::vector<Line*> lines);
  StepTicket next_ticket();
  void drop_step();
  void take(const Flight& flight);

  const std::unique_ptr<Engine> engine_;
  const EngineLimits& limits_;
  const int64_t vocab_;
  BlockPool pool_;
  StepBuilder builder_;
  Pacer pacer_;
  std::vector<DraftCache*> caches_;
  std::deque<StepTicket> flying_;
  uint64_t uses_ = 0;
  int failures_ = 0;         // in a row
  int64_t offers_ = 0;       // since one was taken
  Clock::time_point taken_;  // the last step was, or the next was begun
  double reading_us_ = 0;    // of the last fill()
  Counts counts_;
};

// The engine of LlmOptions::draft_model beside `target`. Throws Error: declined where its tokens are not the target's.
std::unique_ptr<Engine> load_draft_engine(const LlmOptions& options, const Engine& target,
                                          const Tokenizer* target_tokenizer);

}  // namespace ingot
