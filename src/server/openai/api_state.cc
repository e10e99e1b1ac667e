#include "server/openai/api_state.h"

#include "server/openai/call.h"

namespace ingot::server::openai {

ApiState::ApiState(ApiOptions given)
    : options(std::move(given)),
      log(options.log, options.log_format),
      responses(std::make_shared<responses::ResponseStore>(options.stored)) {}

int64_t ApiState::now_s() const {
  if (options.clock) return options.clock();
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void ApiState::add(std::shared_ptr<Call> call) {
  const std::lock_guard lock(mutex_);
  calls_.insert(std::move(call));
}

void ApiState::remove(const std::shared_ptr<Call>& call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
}

std::unordered_set<std::shared_ptr<Call>> ApiState::take_calls() {
  const std::lock_guard lock(mutex_);
  return std::exchange(calls_, {});
}

void ApiState::fail(const ErrorReply& failure) {
  std::unordered_set<std::shared_ptr<Call>> calls;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    failed_ = true;
    calls = calls_;
  }
  for (const auto& call : calls) call->fail();
}

std::optional<ErrorReply> ApiState::failure() const {
  if (!failed_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_;
}

RequestTrace::RequestTrace(std::shared_ptr<ApiState> state, const HttpRequest& request, std::string route)
    : state_(std::move(state)), route_(std::move(route)), start_(std::chrono::steady_clock::now()) {
  record_.time = std::chrono::system_clock::now();
  record_.id = request.id;
  record_.peer = request.peer;
  record_.method = request.method;
  record_.path = request.path;
}

void RequestTrace::finish(int status) {
  if (std::exchange(finished_, true)) return;
  record_.status = status;
  record_.duration_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  state_->counts.add(record_.method, route_, status);
  const bool probe = route_ == "/live" || route_ == "/health" || route_ == "/ready" || route_ == "/metrics";
  if (!probe || status != 200 || state_->options.log_probes) state_->log.write(record_);
}

}  // namespace ingot::server::openai
