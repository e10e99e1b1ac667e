#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/fair_workers.h"
#include "server/metrics.h"
#include "server/openai/api.h"
#include "server/openai/errors.h"
#include "server/request_log.h"

namespace ingot::server::openai {

class Call;

// What all requests share. Thread-safe.
struct ApiState {
  explicit ApiState(ApiOptions given);

  const ApiOptions options;
  RequestLog log;
  HttpCounts counts;
  const std::shared_ptr<responses::ResponseStore> responses;
  FairWorkers tasks{2, FairWorkers::Manners::yielding};  // put whole answers together

  int64_t now_s() const;  // since 1970

  void add(std::shared_ptr<Call> call);
  void remove(const std::shared_ptr<Call>& call);
  std::unordered_set<std::shared_ptr<Call>> take_calls();
  void fail(const ErrorReply& failure);  // Api::give_up()
  std::optional<ErrorReply> failure() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Call>> calls_;  // completions under way
  std::optional<ErrorReply> failure_;
  std::atomic<bool> failed_{false};
};

// The log line of one request; written once, by whoever ends the request.
class RequestTrace {
 public:
  RequestTrace(std::shared_ptr<ApiState> state, const HttpRequest& request, std::string route);

  RequestRecord& record() { return record_; }
  const std::string& route() const { return route_; }
  void finish(int status);

 private:
  std::shared_ptr<ApiState> state_;
  std::string route_;
  std::chrono::steady_clock::time_point start_;
  RequestRecord record_;
  bool finished_ = false;
};

}  // namespace ingot::server::openai
