#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace ingot::grammar {

struct Configuration;

// One text under a grammar, token by token. A copy is a fork: both go on apart. Matchers of one grammar may be used by
// different threads; one matcher is used by one at a time.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Grammar> grammar);

  // Takes a token that the model has drawn. False: the grammar does not allow it, and nothing has changed.
  bool accept(int32_t token);
  // Takes bytes as one step. Returns how many of them the grammar allows; unless all are, nothing has changed.
  size_t accept_bytes(std::string_view bytes);
  // Which tokens may follow: bit i % 32 of word i / 32. End tokens are set where the text may end.
  void fill_mask(std::span<uint32_t> bits);
  // The bytes that must follow, as far as there is no choice; at most `most`.
  std::string forced(size_t most = 256);

  void rollback(size_t steps);  // forgets the last tokens
  size_t steps() const { return history_.size() - 1; }

  bool is_complete() const;                          // the text may end here
  bool is_finished() const;                          // an end token has been taken
  const std::string& text() const { return text_; }  // special tokens with their mark

 private:
  struct Place {
    Configuration* configuration;
    size_t length;  // of the text
    bool finished;
  };
  Configuration* walk(Configuration* from, std::string_view bytes, size_t& taken);
  // Runs `work` on the machine; once more on a fresh one when that is full.
  template <typename Work>
  auto on_machine(Work work);
  void move_to_fresh_machine();

  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<Machine> machine_;
  std::vector<Place> history_;  // the start, then after each step
  std::string text_;
};

}  // namespace ingot::grammar
