#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "eventually.h"
#include "server/http_server.h"
#include "server/raw_client.h"

namespace ingot::testing {

using server::Exchange;
using server::HttpReply;
using server::HttpRequest;
using server::HttpServer;
using server::HttpServerOptions;
using test::eventually;

// A body that a test writes bit by bit.
class TestSource : public server::BodySource {
 public:
  bool pull(std::string& out) override {
    const std::lock_guard lock(mutex_);
    ++pulls_;
    out += ready_;
    ready_.clear();
    return ended_;
  }
  void write(std::string_view text) {
    const std::lock_guard lock(mutex_);
    ready_ += text;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  size_t pulls() const {
    const std::lock_guard lock(mutex_);
    return pulls_;
  }
  size_t waiting() const {  // bytes not pulled yet
    const std::lock_guard lock(mutex_);
    return ready_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::string ready_;
  bool ended_ = false;
  size_t pulls_ = 0;
};

// A server on a free port. /echo answers with what came; every other path goes to take(), for the test to answer.
class TestServer {
 public:
  explicit TestServer(HttpServerOptions options = {});
  ~TestServer();

  HttpServer& http() { return http_; }
  uint16_t port() const { return http_.port(); }
  // The next exchange that is not an echo; null when none comes within a minute.
  std::shared_ptr<Exchange> take();

 private:
  void handle(std::shared_ptr<Exchange> exchange);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
  HttpServer http_;
};

inline const std::string kGet = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + body;
}

int thread_count();  // of this process; 0 where there is no /proc

}  // namespace ingot::testing
