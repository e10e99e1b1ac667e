// What comes of a step: its tokens go to their sequences, and its times to whoever learns from them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "orchestrator/beam_search.h"
#include "orchestrator/choice.h"
#include "orchestrator/stats.h"
#include "orchestrator/step_loop.h"

namespace ingot {

void StepLoop::commit(const ScheduledStep& scheduled, const StepResult& result) {
  const Clock::time_point now = Clock::now();
  Pacer& pacer = scheduler_.pacer();
  if (scheduled.drafts == 0 && !scheduled.sequences.empty())
    pacer.learn(scheduled.decode_rows, scheduled.prefill_rows, result.stats.run_us, scheduled.prefill_reads);
  if (scheduled.prefill_rows == 0 && scheduled.drafts == 0 && result.stats.kv_bytes > 0) {
    // As if each byte took as long as any other.
    const auto kv = static_cast<double>(result.stats.kv_bytes),
               all = kv + static_cast<double>(result.stats.weight_bytes);
    const std::vector<int32_t>& lens = scheduled.step.seq_lens;
    pacer.expect_reading(result.stats.run_us * kv / all / std::accumulate(lens.begin(), lens.end(), 1.0));
  }
  if (scheduled.prefill_rows == 0 && !scheduled.sequences.empty())
    pacer.learn_rows(scheduled.decode_rows + scheduled.draft_rows, result.stats.run_us);
  if (scheduled.waited) pacer.learn_gap(result.stats.gap_us, scheduled.drafting_us, result.stats.run_us);
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
    take_states(part, result);
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
    take_states(part, result);
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

// Hands the hidden states of the part's rows to the head that reads them: of a draft those up to the last that came
// true.
void StepLoop::take_states(const ScheduledSequence& part, const StepResult& result) {
  if (part.first_state < 0) return;
  Sequence& sequence = *part.sequence;
  int64_t rows = part.states;
  if (part.sample >= 0) rows = std::min(rows, sequence.known() - 1 - part.states_from);
  if (rows <= 0) return;
  const int64_t width = draft_model_->state_width();
  draft_model_->take_states(
      sequence, part.states_from,
      std::span(result.states)
          .subspan(static_cast<size_t>(part.first_state * width), static_cast<size_t>(rows * width)));
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

}  // namespace ingot
