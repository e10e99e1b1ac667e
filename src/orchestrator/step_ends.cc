// How requests end before they are through: cancelled, late, without a mask, or with a step that failed.
#include <exception>
#include <utility>

#include "orchestrator/choice.h"
#include "orchestrator/stats.h"
#include "orchestrator/step_loop.h"

namespace ingot {
namespace {

// Where one of its sequences can have no mask; null: nowhere.
const GuidedText* mask_fault(const Request& request) {
  for (const auto& sequence : request.sequences)
    if (sequence->guide && !sequence->guide->pending() && !sequence->guide->error().empty())
      return sequence->guide.get();
  return nullptr;
}

}  // namespace

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

}  // namespace ingot
