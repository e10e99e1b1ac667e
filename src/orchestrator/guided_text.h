#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grammar/matcher.h"
#include "orchestrator/thinking_budget.h"

namespace ingot {

class Tokenizer;

// The text of one sequence under its grammar, with the mask of its next token. It belongs to the step loop while
// pending() is false, and to the mask workers otherwise. A sequence that is preempted keeps it: it follows from the
// tokens alone.
//
// Where the grammar leaves no choice of bytes, the tokens are those that the tokenizer makes of them, but for the last,
// which what follows may join: the mask then has one bit. Where nobody wants to know what the model thinks of them
// (`jumps`), they are not drawn at all but taken together (take_jump), which gives the same tokens with fewer steps.
// What closes a block of reasoning whose budget is spent is forced in the same way.
class GuidedText {
 public:
  GuidedText(std::shared_ptr<grammar::Grammar> grammar, const Tokenizer& tokenizer, bool jumps,
             std::optional<ThinkingBudget> thinking = std::nullopt)
      : grammar_(std::move(grammar)), tokenizer_(tokenizer), jumps_(jumps), thinking_(std::move(thinking)) {}

  bool pending() const { return pending_.load(std::memory_order_acquire); }
  // -- while it is not pending --
  bool ready() const { return !pending() && error_.empty(); }
  bool may_draw() const { return ready() && jump_.empty(); }  // the mask is that of the sequence's next token
  const std::string& error() const { return error_; }         // why there is no mask; empty: there is one
  bool over_budget() const { return over_budget_; }           // that is why
  // Of the next token, or of the one behind `ahead` tokens of the draft; and whether the text may end there.
  std::span<const uint32_t> mask(size_t ahead = 0) const { return rows_[ahead].mask; }
  bool complete(size_t ahead = 0) const { return rows_[ahead].complete; }
  // Tokens of the draft that was posted last that the grammar allows, each with a mask behind it.
  size_t drafted() const { return rows_.size() - 1; }
  bool cheap() const;  // masks have been, of late
  // Tokens behind the last that was posted; the mask is that of the token behind them.
  std::vector<int32_t> take_jump() { return std::exchange(jump_, {}); }

 private:
  friend class MaskWorkers;
  // Where in the text it is. A copy goes on apart.
  struct Place {
    grammar::Matcher matcher;
    std::deque<int32_t> forced;  // the next tokens
    std::optional<ThinkingBudget> thinking;
  };
  // What may follow a place.
  struct Row {
    std::vector<uint32_t> mask;
    bool complete = false;
  };

  void advance(std::span<const int32_t> tokens, std::span<const int32_t> draft);
  void advance(std::span<const int32_t> tokens);
  void look_ahead(std::span<const int32_t> draft);
  void accept(Place& place, int32_t token) const;
  void plan(Place& place) const;
  bool close_thinking(Place& place) const;
  Row row_of(Place& place) const;

  const std::shared_ptr<grammar::Grammar> grammar_;
  const Tokenizer& tokenizer_;
  const bool jumps_;
  std::optional<ThinkingBudget> thinking_;  // until there is a place
  std::unique_ptr<Place> place_;
  std::vector<int32_t> jump_;
  std::vector<Row> rows_;  // at the place, then behind each token of the draft
  std::string error_;
  bool over_budget_ = false;
  double mean_us_ = 0;  // of the processor, that its last masks took
  std::atomic<bool> pending_{false};
};

// Threads that make masks. One is always free for texts whose masks have been cheap, whatever the others do.
class MaskWorkers {
 public:
  // `tend` is called now and then by one of the threads.
  MaskWorkers(int threads, std::function<void()> tend);
  ~MaskWorkers();

  // Takes the tokens that were drawn, then makes the mask of what may follow.
  void post(const std::shared_ptr<GuidedText>& text, std::vector<int32_t> tokens);
  // Makes the masks behind the tokens of a draft, as far as the grammar allows them. The text stays where it is.
  void post_draft(const std::shared_ptr<GuidedText>& text, std::vector<int32_t> draft);
  // Waits until no text whose masks are cheap is pending, or the time is over.
  void wait_for_cheap(std::chrono::microseconds most);
  // Waits until any text is done; at once when none is pending.
  void wait_for_any(std::chrono::microseconds most);

 private:
  struct Job {
    std::shared_ptr<GuidedText> text;
    std::vector<int32_t> tokens, draft;
    bool dear;
  };
  void add(Job job);
  void work();
  std::deque<Job>::iterator next();

  const int count_;
  const std::function<void()> tend_;
  std::mutex mutex_;
  std::condition_variable posted_, done_;
  std::deque<Job> jobs_;
  int cheap_ = 0, dear_ = 0;  // posted and not done
  int dear_running_ = 0;
  uint64_t finished_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace ingot
