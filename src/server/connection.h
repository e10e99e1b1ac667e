#pragma once

#include <array>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/channel.h"
#include "server/http_error.h"
#include "server/reply_head.h"
#include "server/request_parser.h"
#include "server/server_core.h"

namespace ingot::server {

// One client. Everything private runs on the connection's own executor (a strand), so nothing in it is locked; the
// public methods may be called from any thread and hand over to it.
//
//   head -> body -> reply -> head ...    and at any point -> linger -> closed
//
// A read is always under way, during an answer too: that is how a client that leaves is noticed. What it sends ahead is
// kept for later, up to a limit. Writing goes its own way: replies and chunks are appended to `queue_`, and a body
// source is pulled only when that has been written.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `address`: whose connection it is. over_limit: there are too many; this one gets a 503 and nothing else.
  Connection(std::shared_ptr<ServerCore> core, std::unique_ptr<Channel> channel, std::string peer, std::string address,
             bool over_limit);
  ~Connection();

  void start();
  void close_if_idle();
  void give_way();  // closes if idle, and counts no longer from now on
  void leave();     // counts no longer
  const std::string& address() const { return address_; }
  int64_t idle_since() const { return idle_since_; }  // 0: busy
  void abort();

  // From an exchange, by its number; those of an exchange that is over do nothing.
  void reply(uint64_t exchange, HttpReply reply);
  void stream(uint64_t exchange, HttpReply head, std::shared_ptr<BodySource> body);
  void wake();
  void on_disconnect(uint64_t exchange, std::function<void()> callback);

 private:
  enum class Phase { handshake, head, body, reply, linger, closed };
  using Clock = std::chrono::steady_clock;
  using Error = boost::system::error_code;

  // Runs `work` on the strand; false, and nothing happens, once the connection is closed.
  bool post(std::function<void()> work);
  void run(const std::function<void()>& work);      // what it throws costs this connection only
  void if_open(const std::function<void()>& work);  // the same, unless closed: for callbacks of reads, writes, timers

  // Reading.
  void begin_request(std::chrono::milliseconds wait);
  void read_more();
  void on_read(Error error, size_t size);
  void on_input_end(Error error);
  void process();
  void judge_head();
  void dispatch();

  // Answering.
  void begin_reply();
  HttpReply error_of(int status, std::string_view code, std::string_view message) const;
  void refuse(int status, std::string_view code, std::string_view message);
  void record_refusal(int status, std::string_view message);
  void send_reply(HttpReply reply);
  void send_stream(HttpReply head, std::shared_ptr<BodySource> body);
  ReplyHead head_for(HttpReply& reply, BodyEnd end, uint64_t length);
  void pump();
  void flush();
  void on_written(Error error, size_t size);
  void finish_reply();

  // Ending.
  void linger();
  void lose_client();
  void close();

  // Deadlines.
  void set_deadline(Clock::time_point when);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void arm_timer();
  void on_deadline();
  Clock::time_point body_deadline() const;
  void watch_client();

  const std::shared_ptr<ServerCore> core_;
  const HttpLimits& limits_;
  const std::unique_ptr<Channel> channel_;
  const std::string peer_;
  const std::string address_;
  const bool over_limit_;
  std::atomic<bool> counted_;        // among the connections of its address
  std::atomic<int64_t> idle_since_;  // of the steady clock, before and between requests

  Phase phase_ = Phase::handshake;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool timer_armed_ = false;

  std::array<char, 16 << 10> buffer_;
  std::string input_;  // read and not used yet
  bool reading_ = false;
  bool input_ended_ = false;
  Clock::time_point input_end_;   // when
  Clock::time_point body_start_;  // of the request being read
  RequestParser parser_;
  BufferLease lease_, reply_lease_;
  bool head_judged_ = false;
  std::string client_, tenant_;  // of the request

  // Of the request being answered.
  std::atomic<uint64_t> completed_{0};  // the last exchange that was answered to its end
  uint64_t exchange_ = 0;
  bool reply_begun_ = false;  // its reply has begun
  std::string id_;
  std::string origin_;
  ErrorShape error_shape_ = ErrorShape::openai;  // whose client it is
  bool keep_alive_ = false;
  bool http10_ = false;
  bool head_only_ = false;
  std::shared_ptr<BodySource> source_;
  BodyEnd source_end_ = BodyEnd::chunked;
  std::function<void()> disconnected_;

  std::string out_;  // being written, from written_ on
  size_t written_ = 0;
  std::string queue_;  // goes next
  bool writing_ = false;
  Clock::time_point progress_;     // when the peer last took something
  Clock::time_point write_start_;  // of out_
  std::atomic<bool> wake_posted_{false};

  std::mutex post_mutex_;
  bool closed_ = false;  // guarded by post_mutex_
};

}  // namespace ingot::server
