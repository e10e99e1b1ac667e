#include "server/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <exception>

#include "core/heap.h"
#include "server/ascii.h"
#include "server/exchange.h"
#include "server/request_id.h"

namespace ingot::server {

namespace asio = boost::asio;

namespace {
constexpr size_t kLarge = 1 << 20;  // bytes of a body whose traces are worth giving back
constexpr const char* kEndedInside = "the connection ended inside the request";

HttpReply failed(const HttpRequest& request) {
  return error_reply({.message = "the server failed to handle this request", .code = "internal_error"},
                     error_shape(request), request.id);
}
}  // namespace

Connection::Connection(std::shared_ptr<ServerCore> core, std::unique_ptr<Channel> channel, std::string peer,
                       std::string address, bool over_limit)
    : core_(std::move(core)),
      limits_(core_->options.limits),
      channel_(std::move(channel)),
      peer_(std::move(peer)),
      address_(std::move(address)),
      over_limit_(over_limit),
      counted_(!over_limit),
      idle_since_(Clock::now().time_since_epoch().count()),
      timer_(channel_->executor()),
      parser_({.head_bytes = limits_.head_bytes, .body_bytes = limits_.body_bytes}) {}

Connection::~Connection() { core_->remove(this); }

// ---- From other threads ----

bool Connection::post(std::function<void()> work) {
  // Under the lock, so that nothing is queued after close(): the I/O threads end once the queue is empty.
  const std::lock_guard lock(post_mutex_);
  if (closed_) return false;
  asio::post(channel_->executor(), [self = shared_from_this(), work = std::move(work)] { self->run(work); });
  return true;
}

void Connection::run(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    core_->log(fmt::format("{}: connection dropped: {}", peer_, error.what()));
    lose_client();
  }
}

void Connection::if_open(const std::function<void()>& work) {
  if (phase_ != Phase::closed) run(work);
}

void Connection::start() {
  post([this] {
    if (phase_ == Phase::closed) return;
    if (!channel_->needs_handshake()) {
      begin_request(limits_.head_time);
      return;
    }
    set_deadline(Clock::now() + limits_.head_time);
    channel_->handshake([self = shared_from_this()](Error error, size_t) {
      self->if_open([&] { error ? self->close() : self->begin_request(self->limits_.head_time); });
    });
  });
}

void Connection::close_if_idle() {
  post([this] {
    if (phase_ == Phase::head && parser_.empty() && input_.empty() && !over_limit_) linger();
  });
}

void Connection::give_way() {
  leave();
  idle_since_ = 0;  // it was asked once
  post([this] {
    if (phase_ == Phase::handshake) return close();
    if (phase_ == Phase::head && parser_.empty() && input_.empty()) linger();
  });
}

void Connection::leave() {
  if (counted_.exchange(false)) core_->admitted.give(address_, 1);
}

void Connection::abort() {
  post([this] { lose_client(); });
}

void Connection::reply(uint64_t exchange, HttpReply reply) {
  // In a shared pointer, because std::function wants to be copied.
  auto held = std::make_shared<HttpReply>(std::move(reply));
  post([this, exchange, held] {
    if (exchange == exchange_ && phase_ == Phase::reply && !reply_begun_) send_reply(std::move(*held));
  });
}

void Connection::stream(uint64_t exchange, HttpReply head, std::shared_ptr<BodySource> body) {
  auto held = std::make_shared<HttpReply>(std::move(head));
  post([this, exchange, held, body = std::move(body)] {
    if (exchange == exchange_ && phase_ == Phase::reply && !reply_begun_) send_stream(std::move(*held), body);
  });
}

void Connection::wake() {
  // One queued pull is enough for any number of wake-ups before it.
  if (wake_posted_.exchange(true)) return;
  post([this] {
    wake_posted_.exchange(false);
    if (!writing_ && source_) pump();
  });
}

void Connection::on_disconnect(uint64_t exchange, std::function<void()> callback) {
  const bool open = post([this, exchange, callback] {
    if (exchange <= completed_) return;
    if (phase_ == Phase::reply)
      disconnected_ = callback;
    else
      callback();
  });
  if (!open && exchange > completed_) callback();
}

// ---- Reading ----

void Connection::begin_request(std::chrono::milliseconds wait) {
  parser_ = RequestParser({.head_bytes = limits_.head_bytes, .body_bytes = limits_.body_bytes});
  client_ = address_;
  tenant_.clear();
  lease_ = BufferLease(core_, client_);
  reply_lease_ = BufferLease();
  idle_since_ = Clock::now().time_since_epoch().count();
  head_judged_ = false;
  id_.clear();
  origin_.clear();
  error_shape_ = ErrorShape::openai;
  keep_alive_ = http10_ = head_only_ = false;
  phase_ = Phase::head;
  set_deadline(Clock::now() + wait);
  if (over_limit_) return refuse(503, "too_many_connections", "the server has too many connections; try again soon");
  process();
  if (phase_ == Phase::head || phase_ == Phase::body) {
    // A new connection may ask once even while the server drains.
    if (parser_.empty() && (input_ended_ || (core_->draining && exchange_ > 0))) return linger();
    if (input_ended_) return refuse(400, "incomplete_request", kEndedInside);
  }
  read_more();
}

void Connection::read_more() {
  if (reading_ || input_ended_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::reply && input_.size() >= limits_.read_ahead_bytes) return;
  reading_ = true;
  channel_->read_some(asio::buffer(buffer_), [self = shared_from_this()](Error error, size_t size) {
    self->reading_ = false;
    self->if_open([&] { self->on_read(error, size); });
  });
}

void Connection::on_read(Error error, size_t size) {
  if (error) return on_input_end(error);
  if (phase_ != Phase::linger) {
    input_.append(buffer_.data(), size);
    process();
  }
  read_more();
}

void Connection::on_input_end(Error error) {
  const bool orderly = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
  if (!orderly) return lose_client();
  input_ended_ = true;
  input_end_ = Clock::now();
  switch (phase_) {
    case Phase::head:
      if (parser_.empty()) return close();
      [[fallthrough]];
    case Phase::body: return refuse(400, "incomplete_request", kEndedInside);
    case Phase::reply: return watch_client();
    default: return close();
  }
}

// Uses the input up to the end of a request.
void Connection::process() {
  while (!input_.empty() && (phase_ == Phase::head || phase_ == Phase::body)) {
    const bool first = parser_.empty();
    input_.erase(0, parser_.feed(input_));
    if (first && !parser_.empty()) {
      idle_since_ = 0;
      set_deadline(Clock::now() + limits_.head_time);
    }
    if (parser_.stage() == RequestParser::Stage::failed)
      return refuse(parser_.refusal().status, parser_.refusal().code, parser_.refusal().message);
    if (parser_.stage() == RequestParser::Stage::head) continue;
    if (!head_judged_) {
      judge_head();
      if (phase_ == Phase::reply) return;
    }
    if (!lease_.grow(parser_.request().body.size()))
      return refuse(503, "too_many_requests", "too many large requests at once; try again soon");
    if (parser_.stage() == RequestParser::Stage::complete) return dispatch();
    set_deadline(body_deadline());
  }
}

// The head is there: what can be refused is refused before the body is read.
void Connection::judge_head() {
  const HttpRequest& request = parser_.request();
  const bool has_body = parser_.stage() == RequestParser::Stage::body;
  head_judged_ = true;
  phase_ = Phase::body;
  body_start_ = Clock::now();
  id_ = request_id(request.header("x-request-id"));
  origin_ = request.header("origin");
  error_shape_ = error_shape(request);
  http10_ = parser_.is_http10();
  keep_alive_ = parser_.keep_alive();
  head_only_ = request.method == "HEAD";

  if (const auto refusal = core_->wall.judge(request, core_->cors)) return refuse(403, refusal->code, refusal->message);
  std::optional<HttpReply> answer = core_->cors.preflight(request);
  const std::string_view authorization = request.header("authorization"), key = request.header("x-api-key");
  if (const auto holder = core_->keys.holder(authorization, key)) {
    client_ = tenant_ = *holder;
    lease_ = BufferLease(core_, client_);
  }
  if (!answer && !core_->keys.empty() && core_->needs_key(request.path) && tenant_.empty()) {
    const char* message = authorization.empty() && key.empty()
                              ? "an API key is needed: send the header `Authorization: Bearer KEY`"
                              : "this API key is not accepted";
    answer = error_of(401, "invalid_api_key", message);
    answer->headers.emplace_back("WWW-Authenticate", "Bearer");
    record_refusal(401, message);
  }
  if (answer) {
    keep_alive_ = keep_alive_ && !has_body;
    begin_reply();
    return send_reply(std::move(*answer));
  }
  const std::string_view expect = request.header("expect");
  if (expect.empty() || http10_) return;
  if (ascii_lower(expect) != "100-continue")
    return refuse(417, "expectation_failed", "the only expectation served is 100-continue");
  if (has_body && input_.empty()) {
    queue_ += "HTTP/1.1 100 Continue\r\n\r\n";
    if (!writing_) flush();
  }
}

void Connection::dispatch() {
  HttpRequest request = parser_.take_request();
  request.id = id_;
  request.peer = peer_;
  request.client = client_;
  request.tenant = tenant_;
  if (head_only_) request.method = "GET";
  const bool quick = request.method == "GET" && !request.path.starts_with("/debug/");
  begin_reply();
  ++core_->requests;
  const uint64_t bytes = request.body.size();
  auto exchange =
      std::make_shared<ConnectionExchange>(shared_from_this(), exchange_, std::move(request), std::move(lease_));
  // Not the core itself: its threads would hold it, and it would end on one of them.
  FairWorkers& workers = quick ? core_->control : core_->workers;
  auto handle = [core = core_.get(), exchange = std::move(exchange), bytes]() mutable {
    try {
      core->handler(exchange);
    } catch (const std::exception& error) {
      core->log(fmt::format("request {}: {}", exchange->request().id, error.what()));
      exchange->reply(failed(exchange->request()));
    } catch (...) {
      exchange->reply(failed(exchange->request()));
    }
    exchange.reset();
    if (bytes >= kLarge) return_free_memory();
  };
  workers.post(client_, std::move(handle), bytes);
}

// ---- Answering ----

void Connection::begin_reply() {
  phase_ = Phase::reply;
  ++exchange_;
  reply_begun_ = false;
  core_->begin_exchange();
  if (input_ended_) input_end_ = Clock::now();
  watch_client();
}

HttpReply Connection::error_of(int status, std::string_view code, std::string_view message) const {
  return error_reply({.status = status, .message = message, .code = code}, error_shape_, id_);
}

void Connection::refuse(int status, std::string_view code, std::string_view message) {
  keep_alive_ = false;
  if (id_.empty()) id_ = request_id(parser_.request().header("x-request-id"));
  error_shape_ = error_shape(parser_.request());
  record_refusal(status, message);
  begin_reply();
  HttpReply reply = error_of(status, code, message);
  if (status == 503) reply.headers.emplace_back("Retry-After", "1");
  send_reply(std::move(reply));
}

void Connection::record_refusal(int status, std::string_view message) {
  ++core_->refused;
  if (!core_->options.refused) return;
  HttpRequest request = parser_.take_request();
  request.id = id_;
  request.peer = peer_;
  core_->options.refused(request, status, message);
}

ReplyHead Connection::head_for(HttpReply& reply, BodyEnd end, uint64_t length) {
  core_->cors.add_headers(origin_, reply.headers);
  if (error_shape_ == ErrorShape::anthropic) reply.headers.emplace_back("Request-Id", id_);
  if (core_->draining || end == BodyEnd::close) keep_alive_ = false;
  return {.request_id = id_, .end = end, .length = length, .http10 = http10_, .keep_alive = keep_alive_};
}

void Connection::send_reply(HttpReply reply) {
  reply_begun_ = true;
  reply_lease_ = BufferLease(core_, client_);
  if (reply.body.size() > limits_.read_ahead_bytes && !reply_lease_.grow(reply.body.size())) {
    reply = error_of(503, "overloaded", "too many large answers are waiting for their readers; try again soon");
    reply.headers.emplace_back("Retry-After", "1");
  }
  const ReplyHead head = head_for(reply, BodyEnd::length, reply.body.size());
  queue_ += write_head(reply, head);
  if (!head_only_ && reply.status != 204 && reply.status != 304) queue_ += reply.body;
  if (!writing_) flush();
}

void Connection::send_stream(HttpReply reply, std::shared_ptr<BodySource> body) {
  reply_begun_ = true;
  source_end_ = http10_ ? BodyEnd::close : BodyEnd::chunked;
  const ReplyHead head = head_for(reply, source_end_, 0);
  queue_ += write_head(reply, head);
  if (head_only_) {
    // Nobody will read the body: whatever makes it can stop.
    if (auto callback = std::exchange(disconnected_, nullptr)) callback();
  } else {
    source_ = std::move(body);
  }
  if (!writing_) flush();
}

// Takes what the source has. Only called when nothing is being written.
void Connection::pump() {
  std::string piece;
  const bool last = source_->pull(piece);
  if (source_end_ == BodyEnd::chunked)
    append_chunk(queue_, piece, last);
  else
    queue_ += piece;
  if (last) source_.reset();
  if (!queue_.empty()) return flush();
  if (last) return finish_reply();
  watch_client();
}

void Connection::flush() {
  if (!writing_) {
    writing_ = true;
    progress_ = write_start_ = Clock::now();
    out_.swap(queue_);
    queue_.clear();
    written_ = 0;
  }
  if (phase_ == Phase::reply) watch_client();
  channel_->write_some(
      asio::buffer(out_.data() + written_, out_.size() - written_),
      [self = shared_from_this()](Error error, size_t size) { self->if_open([&] { self->on_written(error, size); }); });
}

void Connection::on_written(Error error, size_t size) {
  if (error) return lose_client();
  written_ += size;
  progress_ = Clock::now();
  if (written_ < out_.size()) return flush();
  writing_ = false;
  out_.clear();
  if (!queue_.empty()) return flush();
  if (phase_ != Phase::reply || !reply_begun_) return;
  if (source_) return pump();
  finish_reply();
}

void Connection::finish_reply() {
  completed_ = exchange_;
  reply_begun_ = false;
  disconnected_ = nullptr;
  core_->end_exchange();
  if (!keep_alive_) return linger();
  if (out_.capacity() > limits_.read_ahead_bytes) out_ = {};
  if (queue_.capacity() > limits_.read_ahead_bytes) queue_ = {};
  begin_request(limits_.idle_time);
}

// ---- Ending ----

// The client gets time to read the last reply: closing with its bytes unread would throw the reply away.
void Connection::linger() {
  phase_ = Phase::linger;
  input_.clear();
  set_deadline(Clock::now() + limits_.linger_time);
  channel_->finish([self = shared_from_this()](Error, size_t) {});
  if (input_ended_) return close();
  read_more();
}

void Connection::lose_client() {
  if (phase_ == Phase::closed) return;
  const bool was_replying = phase_ == Phase::reply;
  close();
  if (!was_replying) return;
  source_.reset();
  core_->end_exchange();
  ++core_->disconnects;
  if (auto callback = std::exchange(disconnected_, nullptr)) callback();
}

void Connection::close() {
  phase_ = Phase::closed;
  clear_deadline();
  timer_.cancel();
  channel_->close();
  core_->remove(this);
  const std::lock_guard lock(post_mutex_);
  closed_ = true;
}

// ---- Deadlines ----

void Connection::set_deadline(Clock::time_point when) {
  deadline_ = when;
  // A timer that is due earlier finds the new deadline when it rings; most deadlines only move away.
  if (when == Clock::time_point::max() || (timer_armed_ && timer_.expiry() <= when)) return;
  arm_timer();
}

void Connection::arm_timer() {
  timer_armed_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](Error error) {
    if (error) return;  // armed again, or closed
    self->timer_armed_ = false;
    self->if_open([&] {
      if (self->deadline_ == Clock::time_point::max()) return;
      Clock::now() < self->deadline_ ? self->arm_timer() : self->on_deadline();
    });
  });
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::head:
      if (parser_.empty()) return linger();
      return refuse(408, "request_timeout", "the head of the request took too long");
    case Phase::body: return refuse(408, "request_timeout", "the body of the request came too slowly");
    case Phase::reply: return lose_client();
    default: return close();
  }
}

Connection::Clock::time_point Connection::body_deadline() const {
  const uint64_t granted_ms = parser_.request().body.size() * 1000 / std::max<uint64_t>(1, limits_.body_rate);
  return body_start_ + limits_.body_time + std::chrono::milliseconds(granted_ms);
}

// While the handler works there is no limit here; only a stuck reader and a client that left have one.
void Connection::watch_client() {
  Clock::time_point when = Clock::time_point::max();
  if (writing_) {
    const uint64_t granted_ms = out_.size() * 1000 / std::max<uint64_t>(1, limits_.write_rate);
    when = std::min(progress_, write_start_ + std::chrono::milliseconds(granted_ms)) + limits_.write_time;
  }
  if (input_ended_) when = std::min(when, input_end_ + limits_.half_close_time);
  set_deadline(when);
}

}  // namespace ingot::server
