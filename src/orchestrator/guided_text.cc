#include "orchestrator/guided_text.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/error.h"
#include "ingot/tokenizer.h"

namespace ingot {
namespace {

constexpr double kDearUs = 1000;      // of the processor, for a mask of late
constexpr uint64_t kTendEvery = 256;  // masks
constexpr size_t kMostForced = 256;   // bytes looked at
constexpr size_t kLongestJump = 64;   // tokens

double thread_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

std::string spell(const grammar::Vocabulary& vocabulary, const std::vector<int32_t>& ids) {
  std::string spelled;
  for (const int32_t id : ids)
    if (static_cast<size_t>(id) < vocabulary.size()) spelled += vocabulary.bytes(id);
  return spelled;
}

}  // namespace

void GuidedText::accept(int32_t token) {
  if (!matcher_->accept(token))
    throw_error(ErrorKind::internal, "the grammar does not allow token {}, which its mask did", token);
  if (thinking_) thinking_->take(grammar_->vocabulary().bytes(token));
  if (!forced_.empty()) forced_.pop_front();
  if (forced_.empty()) plan();
}

// Looks whether the next tokens are forced.
void GuidedText::plan() {
  if (thinking_ && thinking_->spent() && close_thinking()) return;
  const std::string bytes = matcher_->forced(kMostForced);
  if (bytes.size() < 2) return;
  const std::vector<int32_t> ids = tokenizer_.encode(bytes, {.add_special = false, .parse_special = false});
  if (spell(grammar_->vocabulary(), ids) == bytes && ids.size() > 1) forced_.assign(ids.begin(), ids.end() - 1);
}

// The tokens that close the block of reasoning are next. False: not here, within a character.
bool GuidedText::close_thinking() {
  const std::string missing = thinking_->missing();
  std::vector<int32_t> ids = tokenizer_.encode(missing, {.add_special = false, .parse_special = true});
  // Tokenizers that put a space before a text cannot go on with a mark that has begun.
  if (missing != thinking_->close() && spell(grammar_->vocabulary(), ids) != missing)
    ids = tokenizer_.encode(thinking_->close(), {.add_special = false, .parse_special = true});
  size_t taken = 0;
  while (taken < ids.size() && matcher_->accept(ids[taken])) ++taken;
  matcher_->rollback(taken);
  if (taken == ids.size()) forced_.assign(ids.begin(), ids.end());
  return taken == ids.size();
}

void GuidedText::advance(int32_t token) {
  const double start = thread_us();
  try {
    if (!matcher_) {
      matcher_.emplace(grammar_);
      plan();
    }
    if (token >= 0) accept(token);
    while (jumps_ && token >= 0 && !forced_.empty() && jump_.size() < kLongestJump) {
      jump_.push_back(forced_.front());
      accept(forced_.front());
    }
    mask_.resize(grammar_->vocabulary().mask_words());
    if (forced_.empty()) {
      matcher_->fill_mask(mask_);
    } else {
      std::ranges::fill(mask_, 0);
      mask_[static_cast<size_t>(forced_.front()) / 32] = uint32_t{1} << (forced_.front() % 32);
    }
  } catch (const grammar::OverBudget& error) {
    error_ = error.what();
    over_budget_ = true;
  } catch (const std::exception& error) {
    error_ = error.what();
  }
  mean_us_ += (thread_us() - start - mean_us_) / 8;
}

MaskWorkers::MaskWorkers(int threads, std::function<void()> tend)
    : count_(std::max(threads, 2)), tend_(std::move(tend)) {
  for (int i = 0; i < count_; ++i) threads_.emplace_back([this] { work(); });
}

MaskWorkers::~MaskWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskWorkers::post(const std::shared_ptr<GuidedText>& text, int32_t token) {
  text->pending_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    const bool dear = text->mean_us_ > kDearUs;
    ++(dear ? dear_ : cheap_);
    jobs_.push_back({text, token, dear});
  }
  posted_.notify_one();
}

void MaskWorkers::wait_for_cheap(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, most, [this] { return cheap_ == 0; });
}

void MaskWorkers::wait_for_any(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, most, [this, before = finished_] { return cheap_ + dear_ == 0 || finished_ != before; });
}

std::deque<MaskWorkers::Job>::iterator MaskWorkers::next() {
  const bool dear_may_run = dear_running_ + 1 < count_;
  const auto cheap = std::ranges::find(jobs_, false, &Job::dear);
  return cheap == jobs_.end() && dear_may_run ? jobs_.begin() : cheap;
}

void MaskWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto job_at = jobs_.end();
    posted_.wait(lock, [&] { return stop_ || (job_at = next()) != jobs_.end(); });
    if (stop_) return;
    Job job = std::move(*job_at);
    jobs_.erase(job_at);
    dear_running_ += job.dear ? 1 : 0;
    lock.unlock();
    if (job.text.use_count() > 1) job.text->advance(job.token);  // otherwise its sequence has ended
    job.text->pending_.store(false, std::memory_order_release);
    job.text.reset();
    lock.lock();
    dear_running_ -= job.dear ? 1 : 0;
    --(job.dear ? dear_ : cheap_);
    const bool tend = ++finished_ % kTendEvery == 0;
    done_.notify_all();
    if (job.dear) posted_.notify_one();  // another of them may run now
    if (!tend) continue;
    lock.unlock();
    tend_();
    lock.lock();
  }
}

}  // namespace ingot
