#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchestrator/drafter.h"
#include "orchestrator/token_index.h"

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

// Guesses from what was said before, which costs nothing.
class TextDrafter : public Drafter {
 public:
  // `recent`: in the client's last answers too, not only in the request's own text.
  explicit TextDrafter(bool recent) : recent_(recent) {}

  void offer(Guess& guess, int32_t most) override;
  void look(Sequence& sequence) override;
  void keep(const Sequence& sequence) override;

 private:
  bool recent_;
  RecentAnswers answers_;
};

}  // namespace ingot
