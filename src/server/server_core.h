#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "core/fair_share.h"
#include "server/api_keys.h"
#include "server/browser_wall.h"
#include "server/cors.h"
#include "server/fair_workers.h"
#include "server/http_server.h"
#include "server/tls.h"

namespace ingot::server {

class Connection;

// What the connections of a server share. Outlives the server itself while a handler still holds an exchange.
struct ServerCore {
  ServerCore(HttpServerOptions given, Handler on_request);

  const HttpServerOptions options;
  const Handler handler;
  const ApiKeys keys;
  const Cors cors;
  const BrowserWall wall;
  const std::unique_ptr<Tls> tls;  // null: plain HTTP
  boost::asio::io_context io;
  FairWorkers workers;  // what a client can make long
  FairWorkers control;  // probes, metrics, lists: never behind the others
  FairShare buffered;   // bytes
  FairShare admitted;   // connections, by address

  std::atomic<bool> draining{false};
  std::atomic<uint64_t> accepted{0}, requests{0}, refused{0}, disconnects{0};

  bool needs_key(std::string_view path) const {
    return options.needs_key ? options.needs_key(path) : needs_key_by_default(path);
  }
  void log(std::string_view line) const {
    if (options.log) options.log(line);
  }

  // False: this address has as many connections as it may, none of them idle.
  bool admit(const std::string& address);
  void add(const std::shared_ptr<Connection>& connection);
  void remove(Connection* connection);  // also wakes up an acceptor that waits for room
  size_t connections() const;
  std::vector<std::shared_ptr<Connection>> all_connections() const;
  std::function<void()> on_room;  // set before the first connection; called without the lock

  void begin_exchange();
  void end_exchange();
  size_t exchanges() const;
  bool wait_idle(std::chrono::milliseconds most);
  void wait_closed();  // until there is no connection

 private:
  mutable std::mutex mutex_;
  std::condition_variable fewer_;  // connections or exchanges
  std::unordered_set<Connection*> connections_;
  size_t exchanges_ = 0;
};

// A client's share of HttpLimits::buffered_bytes, given back when it is destroyed.
class BufferLease {
 public:
  BufferLease() = default;
  BufferLease(std::shared_ptr<ServerCore> core, std::string client)
      : core_(std::move(core)), client_(std::move(client)) {}
  BufferLease(BufferLease&& other) noexcept
      : core_(std::move(other.core_)), client_(std::move(other.client_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BufferLease& operator=(BufferLease&& other) noexcept {
    std::swap(core_, other.core_);
    std::swap(client_, other.client_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BufferLease() {
    if (core_ && bytes_ > 0) core_->buffered.give(client_, bytes_);
  }

  // Grows to `bytes`; false when that is more than the client may have now.
  bool grow(uint64_t bytes);

 private:
  std::shared_ptr<ServerCore> core_;
  std::string client_;
  uint64_t bytes_ = 0;
};

}  // namespace ingot::server
