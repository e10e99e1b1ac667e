#include "orchestrator/guided_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/threads.h"
#include "ingot/tokenizer.h"

namespace ingot {
namespace {

constexpr double kDearUs = 1000;      // of the processor, for a mask of late
constexpr uint64_t kTendEvery = 256;  // masks
constexpr size_t kMostForced = 256;   // bytes looked at
constexpr size_t kLongestJump = 64;   // tokens

std::string spell(const grammar::Vocabulary& vocabulary, const std::vector<int32_t>& ids) {
  std::string spelled;
  for (const int32_t id : ids)
    if (static_cast<size_t>(id) < vocabulary.size()) spelled += vocabulary.bytes(id);
  return spelled;
}

}  // namespace

bool GuidedText::cheap() const { return mean_us_ <= kDearUs; }

void GuidedText::accept(Place& place, int32_t token) const {
  if (!place.matcher.accept(token))
    throw_error(ErrorKind::internal, "the grammar does not allow token {}, which its mask did", token);
  if (place.thinking) place.thinking->take(grammar_->vocabulary().bytes(token));
  if (!place.forced.empty()) place.forced.pop_front();
  if (place.forced.empty()) plan(place);
}

// Looks whether the next tokens are forced.
void GuidedText::plan(Place& place) const {
  if (place.thinking && place.thinking->spent() && close_thinking(place)) return;
  const std::string bytes = place.matcher.forced(kMostForced);
  if (bytes.size() < 2) return;
  const std::vector<int32_t> ids = tokenizer_.encode(bytes, {.add_special = false, .parse_special = false});
  if (spell(grammar_->vocabulary(), ids) == bytes && ids.size() > 1) place.forced.assign(ids.begin(), ids.end() - 1);
}

// The tokens that close the block of reasoning are next. False: not here, within a character.
bool GuidedText::close_thinking(Place& place) const {
  const std::string missing = place.thinking->missing();
  std::vector<int32_t> ids = tokenizer_.encode(missing, {.add_special = false, .parse_special = true});
  // Tokenizers that put a space before a text cannot go on with a mark that has begun.
  if (missing != place.thinking->close() && spell(grammar_->vocabulary(), ids) != missing)
    ids = tokenizer_.encode(place.thinking->close(), {.add_special = false, .parse_special = true});
  size_t taken = 0;
  while (taken < ids.size() && place.matcher.accept(ids[taken])) ++taken;
  place.matcher.rollback(taken);
  if (taken == ids.size()) place.forced.assign(ids.begin(), ids.end());
  return taken == ids.size();
}

GuidedText::Row GuidedText::row_of(Place& place) const {
  Row row{std::vector<uint32_t>(grammar_->vocabulary().mask_words()), place.matcher.is_complete()};
  if (place.forced.empty())
    place.matcher.fill_mask(row.mask);
  else
    row.mask[static_cast<size_t>(place.forced.front()) / 32] = uint32_t{1} << (place.forced.front() % 32);
  return row;
}

void GuidedText::advance(std::span<const int32_t> tokens) {
  if (!place_) {
    place_ = std::make_unique<Place>(Place{grammar::Matcher(grammar_), {}, std::move(thinking_)});
    plan(*place_);
  }
  for (const int32_t token : tokens) accept(*place_, token);
  while (jumps_ && !tokens.empty() && !place_->forced.empty() && jump_.size() < kLongestJump) {
    jump_.push_back(place_->forced.front());
    accept(*place_, jump_.back());
  }
  rows_.assign(1, row_of(*place_));
}

void GuidedText::look_ahead(std::span<const int32_t> draft) {
  rows_.resize(1);
  Place ahead = *place_;
  for (const int32_t token : draft) {
    const auto word = static_cast<size_t>(token) / 32;
    const std::vector<uint32_t>& mask = rows_.back().mask;
    if (word >= mask.size() || (mask[word] >> (token % 32) & 1) == 0) return;
    accept(ahead, token);
    // Nothing is drawn behind the end, nor where the grammar goes on by itself.
    if (ahead.matcher.is_finished() || (jumps_ && !ahead.forced.empty())) return;
    rows_.push_back(row_of(ahead));
  }
}

void GuidedText::advance(std::span<const int32_t> tokens, std::span<const int32_t> draft) {
  const double start = thread_us();
  size_t masks = 1;
  try {
    if (draft.empty()) {
      advance(tokens);
    } else {
      look_ahead(draft);
      masks = rows_.size();
    }
  } catch (const grammar::OverBudget& error) {
    // A draft ends where its masks cost too much: the token there may never be drawn.
    if (draft.empty()) error_ = error.what();
    over_budget_ = draft.empty();
  } catch (const std::exception& error) {
    error_ = error.what();
  }
  mean_us_ += ((thread_us() - start) / static_cast<double>(masks) - mean_us_) / 8;
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

void MaskWorkers::post(const std::shared_ptr<GuidedText>& text, std::vector<int32_t> tokens) {
  add({text, std::move(tokens), {}, !text->cheap()});
}

void MaskWorkers::post_draft(const std::shared_ptr<GuidedText>& text, std::vector<int32_t> draft) {
  add({text, {}, std::move(draft), !text->cheap()});
}

void MaskWorkers::add(Job job) {
  job.text->pending_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    ++(job.dear ? dear_ : cheap_);
    jobs_.push_back(std::move(job));
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
    if (job.text.use_count() > 1) job.text->advance(job.tokens, job.draft);  // otherwise its sequence has ended
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
