#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ingot/engine.h"
#include "ingot/llm.h"
#include "orchestrator/pacer.h"
#include "orchestrator/request.h"

namespace ingot {

// The answers that a client got lately, to be found again in those to come.
class RecentAnswers {
 public:
  using Client = std::pair<std::string, std::string>;  // and the salt that keeps its texts apart
  struct Log {
    std::vector<int32_t> tokens;
    TokenIndex index;
    uint64_t used = 0;  // when it last was: a count
  };

  void add(const Client& client, std::span<const int32_t> answer);
  const Log* of(const Client& client);

 private:
  std::map<Client, Log> logs_;
  uint64_t uses_ = 0;
};

// Guesses what sequences say next from what was said before, so that one step can verify several tokens. It only ever
// guesses: the text is that of plain decoding, since each row of a step draws for itself, and a guess counts when it is
// what was drawn. How many tokens are guessed follows from how often guesses came true and from what rows cost.
class Speculator {
 public:
  static constexpr int32_t kMostDraft = 15;

  // `fixed`: LlmOptions::draft_tokens.
  Speculator(Speculation kind, int32_t fixed, const EngineLimits& limits)
      : kind_(kind), fixed_(fixed), limits_(limits) {}

  // Gives some of `due`, whose next token is the host's to know, a draft. `rows`: that the step has in any case, one
  // for each of them included.
  void propose(const std::vector<Sequence*>& due, int32_t rows, const Pacer& pacer);
  // Takes in tokens that a sequence has got. If the next is on its way already: whether it should be waited for, since
  // a draft would pay.
  void look(Sequence& sequence, int32_t rows, const Pacer& pacer);
  // Keeps what an ended sequence said.
  void keep(const Sequence& sequence);

  bool may_draft(const Sequence& sequence) const;

 private:
  struct Guess {
    Sequence* sequence = nullptr;
    std::vector<int32_t> tokens;
    double rate = 0;    // the chance of each to come true, given those before it
    int32_t taken = 0;  // tokens that pay
  };
  Guess guess(Sequence& sequence);
  void choose(std::vector<Guess>& guesses, int32_t rows, const Pacer& pacer) const;

  Speculation kind_;
  int32_t fixed_;
  EngineLimits limits_;
  RecentAnswers recent_;
};

}  // namespace ingot
