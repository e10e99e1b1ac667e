#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ingot/llm.h"

namespace ingot {

// Both ends of a Generation: the step loop appends, a reader on another thread takes.
class LiveGeneration final : public Generation {
 public:
  // `on_cancel` wakes the step loop; `notify` is the reader's.
  LiveGeneration(std::string id, int32_t choices, std::function<void()> on_cancel, std::function<void()> notify);

  // The reader's end.
  const std::string& id() const override { return id_; }
  std::vector<ChoiceDelta> take() override;
  bool done() const override;
  bool wait(std::chrono::milliseconds most) override;
  void cancel() override;
  GenerationSummary summary() const override;
  std::vector<TokenScore> prompt_scores() const override;

  // The step loop's end, on its thread alone. publish() wakes the reader, once a step; before it the reader does not
  // find an end, for whoever finds one may rely on what the request held being free.
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  void append(ChoiceDelta delta);
  void set_prompt_scores(std::vector<TokenScore> scores);
  void set_summary(GenerationSummary summary, bool wakes = false);  // as far as it is known
  void finish(GenerationSummary summary);
  void publish();

 private:
  const std::string id_;
  std::function<void()> notify_;
  std::atomic<bool> cancelled_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> on_cancel_;
  std::vector<ChoiceDelta> ready_;  // [choices], what was not taken yet
  std::vector<bool> fresh_;         // [choices] has something
  std::vector<TokenScore> prompt_scores_;
  GenerationSummary summary_;
  bool done_ = false;
  bool news_ = false;  // since the last take()

  // The step loop's alone.
  bool unpublished_ = false;
  bool finished_ = false;
};

}  // namespace ingot
