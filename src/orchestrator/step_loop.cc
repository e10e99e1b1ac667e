#include "orchestrator/step_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/threads.h"
#include "orchestrator/choice.h"
#include "orchestrator/measured_steps.h"
#include "orchestrator/stats.h"
#include "orchestrator/text_drafter.h"

namespace ingot {
namespace {

constexpr int kMostMaskThreads = 8;
// A mask that takes longer leaves its row out of a step.
constexpr std::chrono::microseconds kMaskPatience{2000};
constexpr std::chrono::milliseconds kMaskPause{5};  // with nothing to do but wait for masks or files
constexpr std::chrono::seconds kLastSaves{5};       // of blocks, before the end

std::shared_ptr<Drafter> make_drafter(Speculation kind, const std::shared_ptr<Drafter>& draft_model) {
  if (kind == Speculation::off) return nullptr;
  if (kind == Speculation::draft) return draft_model;
  return std::make_shared<TextDrafter>(kind == Speculation::suffix);
}

}  // namespace

StepLoop::StepLoop(Engine& engine, PrefixTiers& tiers, std::shared_ptr<Drafter> draft_model, const Tokenizer* tokenizer,
                   Grammars& grammars, const LlmOptions& options, uint64_t most_requests, uint64_t most_host_bytes)
    : places(most_requests),
      host_bytes(most_host_bytes),
      engine_(engine),
      tokenizer_(tokenizer),
      options_(options),
      tiers_(tiers),
      masks_(std::min(ThreadPool::available_cpus(), kMostMaskThreads), [&grammars] { grammars.trim(); }),
      scheduler_(engine.limits(), tiers, options.prefix_caching, options.target_step_ms),
      draft_model_(std::move(draft_model)),
      speculator_(make_drafter(options.speculate, draft_model_), options.draft_tokens, engine.limits()),
      part_count_(engine.limits().steps_in_flight - 1),
      tunes_(options.tune),
      stats_(empty_stats()) {
  if (draft_model_) expect_rows(engine, scheduler_.pacer());
  stats_.blocks_total = engine.limits().num_blocks;
  observe_tiers(stats_, {}, tiers.counts());
  thread_ = std::thread([this] { run(); });
}

StepLoop::~StepLoop() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stop_ = true;
  }
  inbox_changed_.notify_one();
  thread_.join();
}

void StepLoop::add(std::unique_ptr<Request> request) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(request));
  }
  inbox_changed_.notify_one();
}

void StepLoop::wake() {
  {
    const std::lock_guard lock(inbox_mutex_);
    woken_ = true;
  }
  inbox_changed_.notify_one();
}

std::vector<std::string> StepLoop::check_integrity() {
  std::future<std::vector<std::string>> answer;
  {
    const std::lock_guard lock(inbox_mutex_);
    answer = checks_.emplace_back().get_future();
  }
  inbox_changed_.notify_one();
  return answer.get();
}

LlmStats StepLoop::stats() const {
  LlmStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  observe_disk(stats, tiers_.disk_counts());
  return stats;
}

void StepLoop::run() {
  for (;;) {
    {
      std::unique_lock lock(inbox_mutex_);
      if (requests_.empty() && in_flight_.empty() && !scheduler_.has_unsaved()) sleep(lock);
      if (stop_) break;
      woken_ = false;
    }
    step();
  }
  while (!in_flight_.empty()) finish_oldest();
  admit();
  for (const auto& request : requests_)
    if (!request->complete) end_request(*request, FinishReason::cancelled);
  emit();
  for (const Clock::time_point end = Clock::now() + kLastSaves; scheduler_.has_unsaved() && Clock::now() < end;) step();
  while (!in_flight_.empty()) finish_oldest();
}

bool StepLoop::has_news() const { return stop_ || woken_ || !inbox_.empty() || !checks_.empty(); }

// Until there is something to do. The time is used: the engine finds out which ways are fast, one at a time.
void StepLoop::sleep(std::unique_lock<std::mutex>& inbox) {
  while (tunes_ && !has_news()) {
    inbox.unlock();
    tunes_ = engine_.tune();
    inbox.lock();
  }
  inbox_changed_.wait(inbox, [this] { return has_news(); });
}

void StepLoop::step() {
  admit();
  const int32_t hopeful = this->hopeful();
  const bool waited = !in_flight_.empty() && waits_first();
  while (waited && !in_flight_.empty()) finish_oldest();
  masks_.wait_for_cheap(kMaskPatience);
  jump_ahead();
  const Clock::time_point before_drafts = Clock::now();
  propose_drafts();
  const double drafting_us = std::chrono::duration<double, std::micro>(Clock::now() - before_drafts).count();
  wait_for_draft_masks();
  ScheduledStep scheduled = scheduler_.schedule(!in_flight_.empty(), parts());
  scheduled.waited = waited;
  scheduled.drafting_us = drafting_us;
  scheduled.reading_us = speculator_.reading_us();
  scheduled.hopeful = hopeful;
  const bool submitted = submit(std::move(scheduled));
  if (!submitted || in_flight_.size() == static_cast<size_t>(engine_.limits().steps_in_flight)) finish_oldest();
  emit();
  if (!in_flight_.empty()) return;
  masks_.wait_for_any(kMaskPause);
  tiers_.wait(kMaskPause);
}

// Rows under a grammar or with a draft go on once their tokens are known here. The others need not wait for that, and
// do not unless it is better for all.
bool StepLoop::waits_first() const {
  if (!options_.overlap) return true;
  if (!engine_.limits().chains_tokens) return false;  // steps in flight have other sequences
  int32_t bound = 0, free = 0;
  for (const ScheduledSequence& part : in_flight_.back().scheduled.sequences)
    if (part.sample >= 0) ++(part.sequence->needs_host() ? bound : free);
  return scheduler_.pacer().waiting_pays(bound, free);
}

// Sequences whose token on its way is worth waiting for.
int32_t StepLoop::hopeful() const {
  if (in_flight_.empty()) return 0;
  return static_cast<int32_t>(std::ranges::count_if(in_flight_.back().scheduled.sequences,
                                                    [](const auto& part) { return part.sequence->waits_for_draft; }));
}

// Into how many steps those that decode are divided. A step that cannot name the tokens of the one before it has other
// sequences than those in flight, and there is work for every stage.
int32_t StepLoop::parts() const { return options_.overlap && !engine_.limits().chains_tokens ? part_count_.now() : 1; }

// Guesses for sequences whose tokens are all known.
void StepLoop::propose_drafts() {
  std::vector<Sequence*> due;
  int32_t rows = 0;
  for (const auto& request : requests_)
    for (const auto& sequence : request->sequences) {
      if (sequence->state != Sequence::State::running || sequence->missing() != 1) continue;
      if (sequence->waits_for_host()) continue;
      ++rows;
      if (sequence->in_flight > 0 || !speculator_.may_draft(*sequence)) continue;
      // Under a grammar a draft stays until its masks are there.
      if (sequence->guide && (!sequence->guide->cheap() || !sequence->draft.empty())) continue;
      due.push_back(sequence.get());
    }
  if (due.empty()) return;
  speculator_.propose(due, rows, scheduler_.pacer());
  for (const Sequence* sequence : due)
    if (sequence->guide && !sequence->draft.empty()) masks_.post_draft(sequence->guide, sequence->draft);
}

// Waits for the masks of drafts. Those whose masks take longer stay out of this step, unless they come in the meantime.
void StepLoop::wait_for_draft_masks() {
  for (const auto& request : requests_)
    for (const auto& sequence : request->sequences)
      if (sequence->guide && !sequence->draft.empty() && sequence->in_flight == 0)
        return masks_.wait_for_cheap(kMaskPatience);
}

// Makes a sequence ready for its first token.
void StepLoop::begin(Sequence& sequence) {
  begin_choice(sequence, tokenizer_);
  const GenerationRequest& spec = sequence.request->spec;
  if (!spec.structured.compiled) return;
  std::optional<ThinkingBudget> thinking;
  if (spec.thinking_budget >= 0 && spec.structured.frame.reasoning)
    thinking.emplace(*spec.structured.frame.reasoning, spec.thinking_budget);
  sequence.guide = std::make_shared<GuidedText>(spec.structured.compiled, *tokenizer_, sequence.request->may_jump(),
                                                std::move(thinking));
  masks_.post(sequence.guide, {});
}

// Appends the tokens that grammars leave no choice of.
void StepLoop::jump_ahead() {
  for (const auto& request : requests_)
    for (size_t i = 0; i < request->sequences.size() && !request->complete; ++i) {
      const std::shared_ptr<Sequence> sequence = request->sequences[i];
      if (sequence->state == Sequence::State::finished || !sequence->guide || !sequence->guide->ready()) continue;
      const std::vector<int32_t> tokens = sequence->guide->take_jump();
      if (tokens.empty()) continue;
      sequence->slot_ready = false;  // the device has not drawn these
      const int64_t before = sequence->generated();
      for (const int32_t token : tokens)
        if (sequence->finish == FinishReason::none) accept_token(*sequence, {.token = token});
      count_tokens(*request, sequence->generated() - before);
      if (sequence->finish == FinishReason::none) continue;
      scheduler_.retire(sequence);
      advance(*request);
    }
}

// Takes in what other threads left: requests, cancellations, questions; and lets requests go whose time is over.
void StepLoop::admit() {
  std::vector<std::unique_ptr<Request>> arrived;
  std::vector<std::promise<std::vector<std::string>>> checks;
  {
    const std::lock_guard lock(inbox_mutex_);
    arrived.swap(inbox_);
    checks.swap(checks_);
  }
  for (std::unique_ptr<Request>& request : arrived) {
    auto sequence = std::make_shared<Sequence>();
    sequence->request = request.get();
    sequence->tokens = request->spec.prompt;
    request->salt = tiers_.hasher().salt(request->spec.cache_salt);
    if (request->scores_prompt()) request->prompt_scores.push_back({.token = sequence->tokens[0]});
    begin(*sequence);
    request->gives_states = draft_model_ && draft_model_->state_width() > 0 && speculator_.may_draft(*sequence);
    request->sequences.push_back(sequence);
    scheduler_.add(std::move(sequence));
    requests_.push_back(std::move(request));
  }
  check_ends(Clock::now());
  for (auto& check : checks) {
    std::vector<std::shared_ptr<Sequence>> alive;
    for (const auto& request : requests_)
      alive.insert(alive.end(), request->sequences.begin(), request->sequences.end());
    std::vector<std::string> faults;
    scheduler_.check(alive, faults);
    if (draft_model_) draft_model_->check(faults);
    check.set_value(std::move(faults));
  }
}

bool StepLoop::submit(ScheduledStep scheduled) {
  if (scheduled.empty()) return false;
  const Clock::time_point now = Clock::now();
  for (const ScheduledSequence& part : scheduled.sequences) {
    Request& request = *part.sequence->request;
    if (!std::exchange(request.started, true)) request.first_step = now;
  }
  try {
    const StepTicket ticket = engine_.submit(scheduled.step);
    in_flight_.push_back({std::move(scheduled), ticket});
    const std::lock_guard lock(stats_mutex_);
    stats_.most_in_flight = std::max(stats_.most_in_flight, static_cast<int32_t>(in_flight_.size()));
    return true;
  } catch (const std::exception& error) {
    fail(scheduled, error.what());
    scheduler_.start_over();
    return false;
  }
}

void StepLoop::finish_oldest() {
  if (in_flight_.empty()) return;
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  StepResult result;
  try {
    result = engine_.wait(step.ticket);
  } catch (const std::exception& error) {
    fail(step.scheduled, error.what());
    withdraw_all();
    scheduler_.start_over();
    return;
  }
  scheduler_.finish_moves(step.scheduled.step, true, result.stats.move_us);
  commit(step.scheduled, result);
  update_stats(step.scheduled, result.stats);
}

// Lets go of the requests that are complete, then makes everything of this round visible to the readers: one who
// submits again at once finds the place free, and the counts right.
void StepLoop::emit() {
  std::vector<std::shared_ptr<LiveGeneration>> generations;
  std::vector<std::string> gone;  // clients of complete requests
  for (const auto& request : requests_) generations.push_back(request->generation);
  std::erase_if(requests_, [&gone](const std::unique_ptr<Request>& request) {
    if (request->complete) gone.push_back(request->spec.client);
    return request->complete;
  });
  const auto holds_blocks = [](const std::unique_ptr<Request>& request) {
    return std::any_of(request->sequences.begin(), request->sequences.end(),
                       [](const auto& sequence) { return !sequence->blocks.empty(); });
  };
  const auto running = static_cast<int32_t>(std::count_if(requests_.begin(), requests_.end(), holds_blocks));
  const PrefixTierCounts tiers = tiers_.counts();
  {
    const std::lock_guard lock(stats_mutex_);
    stats_.running = running;
    stats_.waiting = static_cast<int32_t>(requests_.size()) - running;
    stats_.host_bytes = host_bytes.used();
    stats_.blocks_used = scheduler_.pool().used();
    stats_.blocks_cached = scheduler_.pool().cached();
    stats_.preemptions = scheduler_.counts().preemptions;
    stats_.prefix_queries = scheduler_.counts().prefix_queries;
    stats_.prefix_hits = scheduler_.counts().prefix_hits;
    observe_tiers(stats_, scheduler_.counts(), tiers);
    if (draft_model_) {
      stats_.draft_steps = draft_model_->counts().steps;
      stats_.drafting_s = draft_model_->counts().seconds;
    }
  }
  for (const std::string& client : gone) places.give(client, 1);
  for (const auto& generation : generations) generation->publish();
}

void StepLoop::update_stats(const ScheduledStep& scheduled, const StepStats& step) {
  const std::lock_guard lock(stats_mutex_);
  ++stats_.steps;
  stats_.failed_in_a_row = 0;
  observe(stats_.step_tokens, scheduled.step.num_scheduled_tokens);
  observe(stats_.step_s, step.run_us / 1e6);
  if (scheduled.follows) observe(stats_.step_gap_s, step.gap_us / 1e6);
}

}  // namespace ingot
