#include "orchestrator/step_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/threads.h"
#include "orchestrator/beam_search.h"
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

// Where one of its sequences can have no mask; null: nowhere.
const GuidedText* mask_fault(const Request& request) {
  for (const auto& sequence : request.sequences)
    if (sequence->guide && !sequence->guide->pending() && !sequence->guide->error().empty())
      return sequence->guide.get();
  return nullptr;
}

std::shared_ptr<Drafter> make_drafter(Speculation kind, const std::shared_ptr<DraftModel>& draft_model) {
  if (kind == Speculation::off) return nullptr;
  if (kind == Speculation::draft) return draft_model;
  return std::make_shared<TextDrafter>(kind == Speculation::suffix);
}

}  // namespace

StepLoop::StepLoop(Engine& engine, PrefixTiers& tiers, std::shared_ptr<DraftModel> draft_model,
                   const Tokenizer* tokenizer, Grammars& grammars, const LlmOptions& options, uint64_t most_requests,
                   uint64_t most_host_bytes)
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

void StepLoop::check_ends(Clock::time_point now) {
  for (const auto& request : requests_) {
    if (request->complete) continue;
    if (request->generation->cancelled())
      end_request(*request, FinishReason::cancelled);
    else if (request->spec.deadline && *request->spec.deadline <= now)
      end_request(*request, FinishReason::timeout, "the time limit of the request is over");
    else if (const GuidedText* fault = mask_fault(*request)) {
      if (fault->over_budget()) request->summary.error_param = request->spec.structured.param;
      end_request(*request, FinishReason::error, fault->error());
    }
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
  scheduler_.finish_moves(step.scheduled.step, true);
  commit(step.scheduled, result);
  update_stats(step.scheduled, result.stats);
}

void StepLoop::commit(const ScheduledStep& scheduled, const StepResult& result) {
  const Clock::time_point now = Clock::now();
  Pacer& pacer = scheduler_.pacer();
  if (scheduled.drafts == 0 && !scheduled.sequences.empty())
    pacer.learn(scheduled.decode_rows, scheduled.prefill_rows, result.stats.run_us);
  if (scheduled.prefill_rows == 0 && !scheduled.sequences.empty())
    pacer.learn_rows(scheduled.decode_rows + scheduled.draft_rows, result.stats.run_us);
  if (scheduled.waited) pacer.learn_gap(result.stats.gap_us, scheduled.drafting_us);
  part_count_.learn(scheduled.decode_rows, scheduler_.decoding(), scheduled.prefill_rows == 0 && scheduled.drafts == 0,
                    now);
  const uint64_t accepted = stats_.accepted_tokens;
  for (const ScheduledSequence& part : scheduled.sequences) commit_sequence(part, result, now);
  settle(scheduled, result.stats, stats_.accepted_tokens - accepted);
  look(scheduled);
}

// Tells the speculator what a step with `accepted` guesses came to.
void StepLoop::settle(const ScheduledStep& scheduled, const StepStats& stats, uint64_t accepted) {
  const int32_t streams = scheduled.decode_rows + scheduled.drafts;
  const bool guessed = scheduled.drafts > 0 || scheduled.hopeful > 0;
  const int32_t left_out = scheduled.waited ? 0 : scheduled.hopeful;
  const double run_us =
      scheduled.prefill_rows == 0
          ? stats.run_us
          : scheduler_.pacer().rows_us(std::min(scheduled.decode_rows + scheduled.draft_rows, Pacer::kMostRows));
  const double idle_us = guessed ? std::max(0.0, stats.gap_us - scheduled.reading_us) : 0;
  if (streams > 0)
    speculator_.settle({.streams = streams + left_out,
                        .tokens = streams + static_cast<int64_t>(accepted),
                        .took_us = run_us + idle_us,
                        .guessed = guessed},
                       scheduler_.pacer());
}

// Lets the speculator see what the sequences of a step have got.
void StepLoop::look(const ScheduledStep& scheduled) {
  std::vector<Sequence*> sequences;
  for (const ScheduledSequence& part : scheduled.sequences)
    if (part.sequence->state != Sequence::State::finished) sequences.push_back(part.sequence.get());
  const int32_t streams = scheduled.decode_rows + scheduled.drafts;
  speculator_.look(sequences, std::max(streams, 1), scheduler_.pacer());
}

void StepLoop::commit_sequence(const ScheduledSequence& part, const StepResult& result, Clock::time_point now) {
  const std::shared_ptr<Sequence>& sequence = part.sequence;
  if (sequence->state == Sequence::State::finished) return;  // it ended while this step was on its way
  Request& request = *sequence->request;
  for (int32_t i = 0; i < part.scores; ++i) {
    const RowResult& row = result.rows[part.first_score + i];
    // After a preemption a position may be scored twice.
    if (part.scored_from + i != static_cast<int64_t>(request.prompt_scores.size())) continue;
    request.prompt_scores.push_back({.token = row.token, .logprob = row.logprob, .rank = row.rank, .top = row.top});
  }
  if (part.sample < 0) {
    scheduler_.remember_blocks(*sequence);
    note_reading(part, now);
    if (part.complete) {  // only the prompt's scores, or its vector, were wanted
      note_token(*sequence, now, false);
      if (part.pooled >= 0) request.generation->append({.embedding = result.pooled[static_cast<size_t>(part.pooled)]});
      end_choice(*sequence, part.pooled >= 0 ? FinishReason::stop : FinishReason::length);
      scheduler_.retire(sequence);
      advance(request);
    }
    return;
  }
  const RowResult& row = result.rows[part.sample];
  --sequence->in_flight;
  note_token(*sequence, now, row.token >= 0);
  if (request.spec.beam_search) {
    if (row.token < 0) return end_request(request, FinishReason::error, kNoLogits);
    sequence->candidates = row;
    scheduler_.remember_blocks(*sequence);
    scheduler_.park(sequence);
  } else {
    std::vector<int32_t> tokens = take_tokens(part, result);
    if (sequence->guide && sequence->finish == FinishReason::none) masks_.post(sequence->guide, std::move(tokens));
    scheduler_.remember_blocks(*sequence);
    if (!request.forked) fork_choices(request);
    if (sequence->finish != FinishReason::none) {
      speculator_.keep(*sequence);
      scheduler_.retire(sequence);
    }
  }
  advance(request);
}

// Whether a guess was right; in measurements, whether it is to be taken for that.
bool StepLoop::came_true(int32_t drawn, int32_t guessed) {
  if (!options_.draft_acceptance) return drawn == guessed;
  return std::uniform_real_distribution<>()(pretended_) < *options_.draft_acceptance;
}

// The token that was drawn, and those of the draft behind it as long as each is what was drawn before it.
std::vector<int32_t> StepLoop::take_tokens(const ScheduledSequence& part, const StepResult& result) {
  Sequence& sequence = *part.sequence;
  const std::vector<int32_t> draft = std::exchange(sequence.draft, {});
  std::vector<int32_t> tokens;
  int32_t accepted = 0;
  for (;;) {
    RowResult row = result.rows[part.sample + accepted];
    if (row.token < 0) {
      end_without_token(sequence, static_cast<size_t>(accepted));
      break;
    }
    const bool goes_on = accepted < part.drafted && came_true(row.token, draft[accepted]);
    if (goes_on) row.token = draft[accepted];
    tokens.push_back(row.token);
    accept_token(sequence, row);
    if (sequence.finish != FinishReason::none || !goes_on) break;
    ++accepted;
  }
  if (part.drafted == 0) return tokens;
  if (sequence.computed > 0) sequence.computed += accepted;  // unless it lost its blocks meanwhile
  speculator_.learn(sequence, part.drafted, accepted);
  Request& request = *sequence.request;
  request.summary.draft_tokens += part.drafted;
  request.summary.accepted_tokens += accepted;
  count_tokens(request, accepted);
  const std::lock_guard lock(stats_mutex_);
  ++stats_.drafts;
  stats_.draft_tokens += static_cast<uint64_t>(part.drafted);
  stats_.accepted_tokens += static_cast<uint64_t>(accepted);
  for (int32_t i = 0; i < accepted; ++i) ++stats_.accepted_at_position[static_cast<size_t>(i)];
  return tokens;
}

// Tokens beside the first of a step.
void StepLoop::count_tokens(Request& request, int64_t tokens) {
  request.summary.completion_tokens += tokens;
  const std::lock_guard lock(stats_mutex_);
  stats_.generation_tokens += static_cast<uint64_t>(tokens);
}

// How far the prompt is, for those who watch.
void StepLoop::note_reading(const ScheduledSequence& part, Clock::time_point now) {
  Request& request = *part.sequence->request;
  if (request.has_token) return;
  request.summary.prompt_tokens = request.prompt_len;
  request.summary.read_tokens = std::min(part.end, request.prompt_len);
  request.summary.queue_s = seconds_between(request.submitted, request.first_step);
  request.summary.prefill_s = seconds_between(request.first_step, now);
  request.generation->set_summary(request.summary, request.spec.report_reading);
}

// Times of tokens, as the request and the histograms want them; `counts`: there is a token.
void StepLoop::note_token(Sequence& sequence, Clock::time_point now, bool counts) {
  Request& request = *sequence.request;
  const bool first = !std::exchange(request.has_token, true);
  if (first) {
    request.first_token = now;
    if (request.scores_prompt()) request.generation->set_prompt_scores(request.prompt_scores);
    request.summary.prompt_tokens = request.summary.read_tokens = request.prompt_len;
    request.summary.queue_s = seconds_between(request.submitted, request.first_step);
    request.summary.prefill_s = seconds_between(request.first_step, now);
    request.generation->set_summary(request.summary);
  }
  if (counts) ++request.summary.completion_tokens;
  const std::lock_guard lock(stats_mutex_);
  if (first) {
    stats_.prompt_tokens += static_cast<uint64_t>(request.prompt_len);
    observe(stats_.first_token_s, seconds_between(request.submitted, now));
  } else if (sequence.last_token != Clock::time_point{}) {
    observe(stats_.inter_token_s, seconds_between(sequence.last_token, now));
  }
  if (counts) ++stats_.generation_tokens;
  sequence.last_token = now;
}

// The prompt is computed: the other choices share its blocks and compute only its last row again, each with its own
// draw from it.
void StepLoop::fork_choices(Request& request) {
  request.forked = true;
  const std::shared_ptr<Sequence> first = request.sequences[0];
  for (int32_t choice = 1; choice < request.width; ++choice) {
    std::shared_ptr<Sequence> sequence = scheduler_.fork_of(*first, request.prompt_len, request.prompt_len - 1);
    sequence->choice = choice;
    begin(*sequence);
    request.sequences.push_back(sequence);
    scheduler_.add(std::move(sequence));
  }
}

// Goes on with a request after one of its sequences changed: the next round of beams, or its end.
void StepLoop::advance(Request& request) {
  if (request.spec.beam_search && request.max_tokens > 0) {
    const bool round_complete = std::all_of(request.sequences.begin(), request.sequences.end(),
                                            [](const auto& beam) { return beam->candidates.has_value(); });
    if (!round_complete || !advance_beams(request, scheduler_)) return;
    send_kept(request, tokenizer_);
    // What was tried and dropped is not part of any answer.
    request.summary.completion_tokens = 0;
    const std::vector<const Sequence*> beams = ranked_beams(request);
    const size_t sent = std::min(beams.size(), static_cast<size_t>(request.spec.n));
    for (size_t i = 0; i < sent; ++i) request.summary.completion_tokens += beams[i]->generated();
    complete(request, beams[0]->finish);
    return;
  }
  if (!request.all_finished()) return;
  if (request.keep_all) send_kept(request, tokenizer_);
  complete(request, request.sequences[0]->finish);
}

// Ends every choice that has not ended yet, for a reason that is not its own.
void StepLoop::end_request(Request& request, FinishReason reason, const std::string& error) {
  request.summary.error = error;
  for (const auto& sequence : request.sequences) {
    if (sequence->state == Sequence::State::finished) continue;
    if (!request.keep_all) end_choice(*sequence, reason);
    scheduler_.retire(sequence);
  }
  const auto created = request.keep_all ? 0 : static_cast<int32_t>(request.sequences.size());
  for (int32_t choice = created; choice < request.spec.n; ++choice)
    request.generation->append({.index = choice, .finish = reason});
  complete(request, reason);
}

void StepLoop::complete(Request& request, FinishReason reason) {
  const Clock::time_point now = Clock::now();
  GenerationSummary& summary = request.summary;
  summary.prompt_tokens = request.prompt_len;
  summary.queue_s = seconds_between(request.submitted, request.started ? request.first_step : now);
  if (request.started)
    summary.prefill_s = seconds_between(request.first_step, request.has_token ? request.first_token : now);
  if (request.has_token) summary.decode_s = seconds_between(request.first_token, now);
  {
    const std::lock_guard lock(stats_mutex_);
    observe_request(stats_, request, reason);
  }
  request.generation->finish(summary);
  host_bytes.give(request.spec.client, request.host_bytes);
  request.complete = true;
}

// A step did not happen: its requests end with the reason. (A sequence that is finished may have outlived its request.)
void StepLoop::fail(const ScheduledStep& scheduled, const std::string& reason) {
  scheduler_.finish_moves(scheduled.step, false);
  count_failure(reason);
  for (const ScheduledSequence& part : scheduled.sequences)
    if (part.sequence->state != Sequence::State::finished)
      end_request(*part.sequence->request, FinishReason::error, reason);
}

// What was submitted behind a step that failed counts for nothing: it may have read what should have been written. It
// is waited for before anything else is submitted, so that a device that goes on failing ends requests, and does not
// make them start again for ever.
void StepLoop::withdraw_all() {
  for (const InFlight& step : std::exchange(in_flight_, {})) {
    try {
      engine_.wait(step.ticket);
    } catch (const std::exception& error) {
      count_failure(error.what());
    }
    scheduler_.finish_moves(step.scheduled.step, false);
    for (const ScheduledSequence& part : step.scheduled.sequences) {
      part.sequence->in_flight = 0;
      part.sequence->draft.clear();
    }
  }
}

void StepLoop::count_failure(const std::string& reason) {
  const std::lock_guard lock(stats_mutex_);
  ++stats_.failed_steps;
  ++stats_.failed_in_a_row;
  stats_.failure = reason;
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
