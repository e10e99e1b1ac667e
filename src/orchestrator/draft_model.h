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
#include "orchestrator/engine_drafter.h"

namespace ingot {

// What the draft model has computed of one sequence.
struct DraftCache : DraftBlocks {
  using DraftBlocks::DraftBlocks;
  void forget() override;
  int64_t filled() const override { return std::ssize(tokens); }

  std::vector<int32_t> tokens;  // whose K and V are in the blocks; the last may be guesses
  int64_t agreed = 0;           // of them, the sequence's own
  int64_t remembered = 0;       // blocks told to the pool
};

// Guesses what a small model says next, greedily: one step of its engine gives all sequences their next token.
class DraftModel : public EngineDrafter {
 public:
  DraftModel(std::unique_ptr<Engine> engine, int64_t vocab);

  void offer(Guess& guess, int32_t most) override;
  void fill(std::span<Guess> guesses) override;
  double begin_us(const Sequence& sequence) const override;

 private:
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

  bool begin(Line& line);
  void find_prefix(const Sequence& sequence, DraftCache& cache);
  void remember_blocks(const Sequence& sequence, DraftCache& cache);
  std::optional<Flight> submit_text(std::vector<Line>& lines);
  std::optional<Flight> submit_guesses(std::vector<Line>& lines);
  Flight submit(std::vector<Line*> lines);
  StepTicket next_ticket();
  void drop_step();
  void take(const Flight& flight);

  std::deque<StepTicket> flying_;
  Clock::time_point taken_;  // the last step was, or the next was begun
};

// The engine of LlmOptions::draft_model beside `target`. Throws Error: declined where its tokens are not the target's.
std::unique_ptr<Engine> load_draft_engine(const LlmOptions& options, const Engine& target,
                                          const Tokenizer* target_tokenizer);

}  // namespace ingot
