#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ingot/engine.h"
#include "ingot/llm.h"
#include "orchestrator/acceptance.h"
#include "orchestrator/draft_credit.h"
#include "orchestrator/drafter.h"
#include "orchestrator/pacer.h"
#include "orchestrator/request.h"

namespace ingot {

// Guesses what sequences say next, so that one step can verify several tokens. It only ever guesses: the text is that
// of plain decoding, since each row of a step draws for itself, and a guess counts when it is what was drawn. How many
// tokens are guessed follows from how often guesses came true, from what rows cost and from what guessing costs;
// whether any are, from what they came to so far (DraftCredit).
class Speculator {
 public:
  static constexpr int32_t kMostDraft = 15;

  // A step with everything that came before it.
  struct Outcome {
    int32_t streams = 0;   // that would have got a token without guesses
    int64_t tokens = 0;    // that they got
    double took_us = 0;    // with the time that the device was idle before it; without reading_us()
    bool guessed = false;  // it had a draft, or somebody waited for one
  };

  // `drafter`: null where nothing is guessed. `fixed`: LlmOptions::draft_tokens.
  Speculator(std::shared_ptr<Drafter> drafter, int32_t fixed, const EngineLimits& limits)
      : drafter_(std::move(drafter)), fixed_(fixed), limits_(limits) {}

  // Gives some of `due`, whose next token is the host's to know, a draft. `rows`: that the step has in any case, one
  // for each of them included.
  void propose(const std::vector<Sequence*>& due, int32_t rows, const Pacer& pacer);
  // Takes in tokens that sequences have got. Of those whose next is on its way already: whether it should be waited
  // for, since drafts would pay.
  void look(const std::vector<Sequence*>& sequences, int32_t rows, const Pacer& pacer);
  // A draft of the sequence was verified.
  void learn(Sequence& sequence, int32_t drafted, int32_t accepted);
  void settle(const Outcome& outcome, const Pacer& pacer);
  // Keeps what an ended sequence said.
  void keep(const Sequence& sequence);
  // What the last propose() took for what comes before a sequence's first draft.
  double reading_us() const { return reading_us_; }

  bool may_draft(const Sequence& sequence) const;

 private:
  Guess guess(Sequence& sequence);
  void weigh(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer);
  void choose(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) const;
  bool unsure() const;  // what comes of guesses, where they have a price
  bool allowed() const { return drafter_ && (fixed_ > 0 || credit_.allows()); }

  const std::shared_ptr<Drafter> drafter_;
  int32_t fixed_;
  EngineLimits limits_;
  DraftCredit credit_;
  Acceptance shared_{kSharedKept, kSharedFaded, kSharedWeight};  // of all sequences
  double reading_us_ = 0;

  static constexpr double kSharedKept = 0.95, kSharedFaded = 0.998, kSharedWeight = 8;
};

}  // namespace ingot
