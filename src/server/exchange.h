#pragma once

#include <atomic>
#include <memory>

#include "server/http.h"
#include "server/server_core.h"

namespace ingot::server {

class Connection;

// The handler's end of a request. Dropping it unanswered answers it with a 500.
class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t number, HttpRequest request, BufferLease lease);
  ~ConnectionExchange() override;

  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override;
  void stream(HttpReply head, std::shared_ptr<BodySource> body) override;
  void wake() override;
  void on_disconnect(std::function<void()> callback) override;

 private:
  const std::shared_ptr<Connection> connection_;
  const uint64_t number_;
  const HttpRequest request_;
  const BufferLease lease_;
  std::atomic<bool> answered_{false};
};

}  // namespace ingot::server
