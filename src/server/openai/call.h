#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/openai/answer.h"
#include "server/openai/api_state.h"
#include "server/openai/errors.h"
#include "server/openai/served_model.h"

namespace ingot::server::openai {

// One completions request from its submission to its log line. The step loop only ever wakes it: answers are put
// together where the transport pulls (streams) or on a task thread (whole answers).
class Call : public BodySource, public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<ApiState> state, std::shared_ptr<const ServedModel> model, std::shared_ptr<Exchange> exchange,
       RequestTrace trace, std::unique_ptr<AnswerWriter> writer, const OutputOptions& output);

  // Submits one generation a request. Throws what submit() throws; then nothing is left running, the exchange is
  // unanswered, and trace() is the caller's to finish.
  void start(std::vector<GenerationRequest> requests);
  RequestTrace& trace() { return trace_; }

  bool pull(std::string& out) override;
  void cancel();  // the client went away, or the server shuts down
  void fail();    // the model is gone (ApiState::failure()): ends what is not complete, without the step loop
  void let_go();  // after the transport has stopped: drops the exchange

 private:
  void notified();
  bool all_done();
  void post_finish();
  void finish();  // on a task thread
  std::optional<ErrorReply> failure_of_model();
  bool pull_events(std::string& out);
  void stream_progress(size_t prompt, std::string& out);
  void reply_whole();
  std::optional<ErrorReply> failure_of(size_t prompt, const ChoiceDelta& delta) const;
  Usage final_usage() const;
  void note(const ChoiceDelta& delta);
  void end(int status);  // the log line, and this object's farewell
  std::shared_ptr<Exchange> exchange();

  const std::shared_ptr<ApiState> state_;
  const std::shared_ptr<const ServedModel> model_;
  const OutputOptions output_;
  RequestTrace trace_;
  std::unique_ptr<AnswerWriter> writer_;
  const std::string client_;

  std::vector<std::shared_ptr<Generation>> generations_;  // complete before submitted_ is set, then constant
  std::atomic<bool> submitted_{false};
  std::atomic<bool> gone_{false};
  std::atomic<bool> finish_posted_{false};
  std::atomic<size_t> first_running_{0};  // generations before this one are done

  std::mutex mutex_;
  std::shared_ptr<Exchange> exchange_;  // let go at the end: it may hold this object

  std::mutex work_mutex_;  // whoever puts the answer together; guards the rest
  bool ended_ = false;
  std::vector<bool> produced_;                          // prompts that gave any token
  std::vector<std::vector<TokenScore>> prompt_scores_;  // of each prompt, where they are part of a stream
  std::vector<int64_t> told_;                           // of each prompt: tokens read, as the stream has told
  Usage so_far_;                                        // of a stream
};

}  // namespace ingot::server::openai
