#include "server/openai/call.h"

#include <algorithm>
#include <cmath>

#include "core/heap.h"

namespace ingot::server::openai {
namespace {
constexpr size_t kLarge = 1 << 20;  // bytes of an answer
}

Call::Call(std::shared_ptr<ApiState> state, std::shared_ptr<const ServedModel> model,
           std::shared_ptr<Exchange> exchange, RequestTrace trace, std::unique_ptr<AnswerWriter> writer,
           const OutputOptions& output)
    : state_(std::move(state)),
      model_(std::move(model)),
      output_(output),
      trace_(std::move(trace)),
      writer_(std::move(writer)),
      client_(exchange->request().client),
      exchange_(std::move(exchange)) {}

void Call::start(std::vector<GenerationRequest> requests) {
  const std::weak_ptr<Call> weak = weak_from_this();
  const auto wake = [weak] {
    if (const auto self = weak.lock()) self->notified();
  };
  const std::shared_ptr<Exchange> exchange = this->exchange();
  state_->add(shared_from_this());
  exchange->on_disconnect([weak] {
    if (const auto self = weak.lock()) self->cancel();
  });
  try {
    for (GenerationRequest& request : requests) {
      so_far_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
      generations_.push_back(model_->generator().submit(std::move(request), wake));
    }
  } catch (...) {
    for (const auto& generation : generations_) generation->cancel();
    state_->remove(shared_from_this());
    throw;
  }
  produced_.resize(generations_.size());
  prompt_scores_.resize(generations_.size());
  told_.resize(generations_.size());
  if (output_.stream) {
    exchange->stream({.content_type = "text/event-stream; charset=utf-8",
                      .body = {},
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}},
                     shared_from_this());
  }
  submitted_ = true;  // after stream(): nothing is woken before it has begun
  if (gone_)
    for (const auto& generation : generations_) generation->cancel();
  notified();  // whatever came before was not heard
  if (state_->failure()) fail();
}

std::shared_ptr<Exchange> Call::exchange() {
  const std::lock_guard lock(mutex_);
  return exchange_;
}

// Runs in the step loop: quick.
void Call::notified() {
  if (!submitted_) return;
  if (output_.stream && !gone_) {
    if (const auto exchange = this->exchange()) exchange->wake();
  } else if (all_done()) {
    post_finish();
  }
}

bool Call::all_done() {
  size_t first = first_running_;
  while (first < generations_.size() && generations_[first]->done()) ++first;
  first_running_ = first;  // racing writers at worst look again
  return first == generations_.size();
}

void Call::post_finish() {
  if (finish_posted_.exchange(true)) return;
  state_->tasks.post(client_, [self = shared_from_this()] { self->finish(); });
}

void Call::cancel() {
  gone_ = true;
  if (!submitted_) return;  // start() looks again
  for (const auto& generation : generations_) generation->cancel();
  if (all_done()) post_finish();
}

void Call::fail() {
  if (!submitted_) return;  // start() looks again
  if (!output_.stream)
    post_finish();
  else if (const auto exchange = this->exchange())
    exchange->wake();
}

// A request that is complete has its answer all the same.
std::optional<ErrorReply> Call::failure_of_model() { return all_done() ? std::nullopt : state_->failure(); }

void Call::let_go() {
  std::shared_ptr<Exchange> exchange;  // goes after the lock: it may be the last to hold the connection
  const std::lock_guard lock(mutex_);
  exchange.swap(exchange_);
}

void Call::finish() {
  const std::lock_guard lock(work_mutex_);
  if (ended_) return;
  if (gone_) return end(kClientGone);
  try {
    reply_whole();
  } catch (const std::exception& error) {
    const ErrorReply error_reply = to_error_reply(error);
    trace_.record().error = error_reply.log_text();
    if (const auto exchange = this->exchange())
      exchange->reply(error_reply.reply(exchange->request(), model_->generator().retry_after_s()));
    end(error_reply.status);
  }
}

void Call::note(const ChoiceDelta& delta) {
  if (delta.finish == FinishReason::none) return;
  std::string& finishes = trace_.record().finish;
  const std::string reason = to_string(delta.finish);
  if (("," + finishes + ",").find("," + reason + ",") != std::string::npos) return;
  finishes += (finishes.empty() ? "" : ",") + reason;
}

// A choice that ended without an answer to give.
std::optional<ErrorReply> Call::failure_of(size_t prompt, const ChoiceDelta& delta) const {
  switch (delta.finish) {
    case FinishReason::error: {
      const GenerationSummary summary = generations_[prompt]->summary();
      const std::string& reason = summary.error;
      if (!summary.error_param.empty())
        return ErrorReply{400, summary.error_param + ": " + reason, summary.error_param, "invalid_value"};
      return ErrorReply{500, reason.empty() ? "the request failed" : reason, "", "generation_failed"};
    }
    case FinishReason::cancelled:
      return ErrorReply{503, "the request was cancelled by the server: try again later", "", "cancelled"};
    case FinishReason::timeout:
      if (produced_[prompt]) return std::nullopt;
      return ErrorReply{504, "the time for this request ended before its first token: try again later", "", "timeout"};
    default: return std::nullopt;
  }
}

Usage Call::final_usage() const {
  Usage usage;
  for (const auto& generation : generations_) {
    const GenerationSummary summary = generation->summary();
    usage.prompt_tokens += summary.prompt_tokens;
    usage.cached_tokens += summary.cached_tokens;
    usage.completion_tokens += summary.completion_tokens;
    usage.draft_tokens += summary.draft_tokens;
    usage.accepted_tokens += summary.accepted_tokens;
    usage.prefill_s = std::max(usage.prefill_s, summary.prefill_s);
    usage.decode_s = std::max(usage.decode_s, summary.decode_s);
  }
  return usage;
}

void Call::reply_whole() {
  std::vector<PromptAnswer> answers(generations_.size());
  const std::optional<ErrorReply> model_failure = failure_of_model();  // asked first: then all there is is taken
  std::optional<ErrorReply> failure;
  for (size_t i = 0; i < generations_.size(); ++i) {
    PromptAnswer& answer = answers[i];
    answer.choices = generations_[i]->take();
    std::sort(answer.choices.begin(), answer.choices.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    if (output_.prompt_logprobs || (output_.echo && output_.logprobs))
      answer.prompt_scores = generations_[i]->prompt_scores();
    for (const ChoiceDelta& choice : answer.choices)
      if (!choice.token_ids.empty()) produced_[i] = true;
    for (const ChoiceDelta& choice : answer.choices) {
      note(choice);
      if (!failure) failure = failure_of(i, choice);
    }
  }
  const std::shared_ptr<Exchange> exchange = this->exchange();
  if (model_failure) failure = model_failure;
  if (failure) {
    trace_.record().error = failure->log_text();
    exchange->reply(failure->reply(exchange->request(), model_->generator().retry_after_s()));
    return end(failure->status);
  }
  std::string body = writer_->whole(answers, final_usage());
  const bool large = body.size() >= kLarge;
  exchange->reply({.body = std::move(body)});
  end(200);
  answers.clear();
  if (large) return_free_memory();  // of the tree it was written from
}

bool Call::pull(std::string& out) {
  const std::lock_guard lock(work_mutex_);
  if (gone_ || ended_) return true;
  const size_t before = out.size();
  try {
    return pull_events(out);
  } catch (const std::exception& error) {
    for (const auto& generation : generations_) generation->cancel();
    out.resize(before);
    const ErrorReply error_reply = to_error_reply(error);
    trace_.record().error = error_reply.log_text();
    writer_->stream_error(error_reply, out);
    end(200);
    return true;
  }
}

void Call::stream_progress(size_t prompt, std::string& out) {
  const GenerationSummary summary = generations_[prompt]->summary();
  if (summary.read_tokens <= told_[prompt]) return;  // after a preemption a prompt is read once more
  told_[prompt] = summary.read_tokens;
  writer_->stream_progress(prompt,
                           {.total = summary.prompt_tokens,
                            .cache = summary.cached_tokens,
                            .processed = summary.read_tokens,
                            .time_ms = std::llround(summary.prefill_s * 1000)},
                           out);
}

bool Call::pull_events(std::string& out) {
  const bool last = all_done();  // asked first: what is taken then is all there is
  if (last) {
    const Usage all = final_usage();
    so_far_.prefill_s = all.prefill_s;
    so_far_.decode_s = all.decode_s;
    so_far_.draft_tokens = all.draft_tokens;
    so_far_.accepted_tokens = all.accepted_tokens;
  }
  std::optional<ErrorReply> failure = failure_of_model();
  for (size_t i = 0; i < generations_.size() && !failure; ++i) {
    if (output_.progress && !produced_[i]) stream_progress(i, out);
    std::vector<ChoiceDelta> deltas = generations_[i]->take();
    if (deltas.empty()) continue;
    if (!produced_[i] && output_.echo && output_.logprobs) prompt_scores_[i] = generations_[i]->prompt_scores();
    if (!produced_[i]) so_far_.cached_tokens += generations_[i]->summary().cached_tokens;
    for (ChoiceDelta& delta : deltas) {
      if (!delta.token_ids.empty()) produced_[i] = true;
      so_far_.completion_tokens += static_cast<int64_t>(delta.token_ids.size());
      note(delta);
      if (std::optional<ErrorReply> own = failure_of(i, delta)) {
        if (!failure) failure = std::move(own);
        if (delta.token_ids.empty()) continue;
        delta.finish = FinishReason::none;  // a slow reader finds last words together with the failure
      }
      writer_->stream(i, delta, prompt_scores_[i], so_far_, out);
    }
  }
  if (failure) {
    for (const auto& generation : generations_) generation->cancel();
    trace_.record().error = failure->log_text();
    writer_->stream_error(*failure, out);
  } else if (!last) {
    return false;
  } else {
    writer_->stream_end(final_usage(), out);
  }
  end(200);
  return true;
}

void Call::end(int status) {
  ended_ = true;
  RequestRecord& record = trace_.record();
  const Usage usage = final_usage();
  record.prompt_tokens = usage.prompt_tokens;
  record.cached_tokens = usage.cached_tokens;
  record.completion_tokens = usage.completion_tokens;
  double decode_s = 0;
  for (const auto& generation : generations_) {
    const GenerationSummary summary = generation->summary();
    decode_s = std::max(decode_s, summary.decode_s);
    if (summary.completion_tokens == 0) continue;
    record.first_token_s = std::min(record.first_token_s.value_or(summary.first_token_s()), summary.first_token_s());
  }
  const auto firsts = static_cast<int64_t>(generations_.size());
  if (decode_s > 0 && usage.completion_tokens > firsts)
    record.tokens_per_s = static_cast<double>(usage.completion_tokens - firsts) / decode_s;
  if (status == kClientGone && record.finish.empty()) record.finish = "cancelled";
  trace_.finish(status);
  let_go();
  state_->remove(shared_from_this());
}

}  // namespace ingot::server::openai
