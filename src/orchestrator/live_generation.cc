#include "orchestrator/live_generation.h"

#include <iterator>
#include <utility>

namespace ingot {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::no_token: return "no_token";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::timeout: return "timeout";
    case FinishReason::error: return "error";
  }
  return "";
}

LiveGeneration::LiveGeneration(std::string id, int32_t choices, std::function<void()> on_cancel,
                               std::function<void()> notify)
    : id_(std::move(id)),
      notify_(std::move(notify)),
      on_cancel_(std::move(on_cancel)),
      ready_(static_cast<size_t>(choices)),
      fresh_(static_cast<size_t>(choices), false) {}

std::vector<ChoiceDelta> LiveGeneration::take() {
  std::vector<ChoiceDelta> taken;
  const std::lock_guard lock(mutex_);
  news_ = false;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (!fresh_[i]) continue;
    taken.push_back(std::exchange(ready_[i], {}));
    taken.back().index = static_cast<int32_t>(i);
    fresh_[i] = false;
  }
  return taken;
}

bool LiveGeneration::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool LiveGeneration::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return news_ || done_; });
}

void LiveGeneration::cancel() {
  if (cancelled_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  if (on_cancel_) on_cancel_();
}

GenerationSummary LiveGeneration::summary() const {
  const std::lock_guard lock(mutex_);
  return summary_;
}

std::vector<TokenScore> LiveGeneration::prompt_scores() const {
  const std::lock_guard lock(mutex_);
  return prompt_scores_;
}

void LiveGeneration::append(ChoiceDelta delta) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(delta.index);
  ChoiceDelta& ready = ready_[index];
  ready.text += delta.text;
  ready.token_ids.insert(ready.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  std::move(delta.scores.begin(), delta.scores.end(), std::back_inserter(ready.scores));
  if (!delta.embedding.empty()) ready.embedding = std::move(delta.embedding);
  if (delta.finish != FinishReason::none) {
    ready.finish = delta.finish;
    ready.stop_reason = std::move(delta.stop_reason);
  }
  fresh_[index] = true;
  unpublished_ = true;
}

void LiveGeneration::set_prompt_scores(std::vector<TokenScore> scores) {
  const std::lock_guard lock(mutex_);
  prompt_scores_ = std::move(scores);
}

void LiveGeneration::set_summary(GenerationSummary summary, bool wakes) {
  const std::lock_guard lock(mutex_);
  summary_ = std::move(summary);
  unpublished_ |= wakes;
}

void LiveGeneration::finish(GenerationSummary summary) {
  const std::lock_guard lock(mutex_);
  summary_ = std::move(summary);
  finished_ = true;
  on_cancel_ = nullptr;  // the step loop may be gone before the reader is
  unpublished_ = true;
}

void LiveGeneration::publish() {
  if (!std::exchange(unpublished_, false)) return;
  {
    const std::lock_guard lock(mutex_);
    news_ = true;
    done_ = finished_;
  }
  changed_.notify_all();
  if (notify_) notify_();
}

}  // namespace ingot
