#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchestrator/request.h"

namespace ingot {

// What may come next in a sequence.
struct Guess {
  Sequence* sequence = nullptr;
  int32_t most = 0;             // tokens that could be guessed
  double prior = 0;             // the chance of each to come true, given those before it, if nothing is known of it
  double rate = 0;              // the same with what is known
  int32_t taken = 0;            // tokens that pay
  std::vector<int32_t> tokens;  // `most` of them, or, where guessing has a price, those taken once they are paid for
};

// Where guesses come from. All is called by the step loop.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Says in `guess` what could be guessed for its sequence: at most `most` tokens.
  virtual void offer(Guess& guess, int32_t most) = 0;
  // Guesses the tokens that were taken, where offer() did not; fewer, or none, where they cannot be had.
  virtual void fill(std::span<Guess>) {}
  // Takes in text that a sequence has got.
  virtual void look(Sequence&) {}
  // Keeps what an ended sequence said.
  virtual void keep(const Sequence&) {}

  // Whether sequences share the price of guessing: then one alone does not tell whether it pays, and what is known of
  // one tells something of the others.
  virtual bool shares() const { return false; }
  // What guessing takes beside the rows that verify it, in microseconds: one more token of so many sequences, ...
  virtual double token_us(int32_t) const { return 0; }
  // ... and, as the share of one draft, what comes before a sequence's first.
  virtual double begin_us(const Sequence&) const { return 0; }
  // What fill() took for what came before first drafts.
  virtual double reading_us() const { return 0; }

  // Hidden states of the model that it reads: so many floats of a row; 0: none.
  virtual int64_t state_width() const { return 0; }
  // Those of a sequence's tokens from `position` on, once they are known to be its text.
  virtual void take_states(Sequence&, int64_t /*position*/, std::span<const float>) {}

  // Of a model that guesses.
  struct Counts {
    uint64_t steps = 0;
    double seconds = 0;
  };
  virtual Counts counts() const { return {}; }
  // Appends a line for each fault of its blocks.
  virtual void check(std::vector<std::string>& /*faults*/) const {}
};

}  // namespace ingot
