#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ingot/engine.h"
#include "ingot/llm.h"
#include "orchestrator/drafter.h"
#include "orchestrator/pacer.h"
#include "orchestrator/request.h"

namespace ingot {

// Guesses what sequences say next, so that one step can verify several tokens. It only ever guesses: the text is that
// of plain decoding, since each row of a step draws for itself, and a guess counts when it is what was drawn. How many
// tokens are guessed follows from how often guesses came true, from what rows cost and from what guessing costs.
class Speculator {
 public:
  static constexpr int32_t kMostDraft = 15;

  // `drafter`: null where nothing is guessed. `fixed`: LlmOptions::draft_tokens.
  Speculator(std::shared_ptr<Drafter> drafter, int32_t fixed, const EngineLimits& limits)
      : drafter_(std::move(drafter)), fixed_(fixed), limits_(limits) {}

  // Gives some of `due`, whose next token is the host's to know, a draft. `rows`: that the step has in any case, one
  // for each of them included.
  void propose(const std::vector<Sequence*>& due, int32_t rows, const Pacer& pacer);
  // Takes in tokens that sequences have got. Of those whose next is on its way already: whether it should be waited
  // for, since drafts would pay.
  void look(const std::vector<Sequence*>& sequences, int32_t rows, const Pacer& pacer);
  // Keeps what an ended sequence said.
  void keep(const Sequence& sequence);

  bool may_draft(const Sequence& sequence) const;

 private:
  Guess guess(Sequence& sequence);
  void choose(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) const;

  const std::shared_ptr<Drafter> drafter_;
  int32_t fixed_;
  EngineLimits limits_;
};

}  // namespace ingot
