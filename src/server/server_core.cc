#include "server/server_core.h"

#include "server/connection.h"

namespace ingot::server {

ServerCore::ServerCore(HttpServerOptions given, Handler on_request)
    : options(std::move(given)),
      handler(std::move(on_request)),
      keys(options.api_keys, options.api_key_file),
      cors(options.cors_origins),
      wall(keys.empty(), options.host, options.allowed_hosts),
      tls(options.tls_certificate.empty() && options.tls_key.empty()
              ? nullptr
              : std::make_unique<Tls>(options.tls_certificate, options.tls_key)),
      workers(options.worker_threads, FairWorkers::Manners::yielding),
      control(1),
      buffered(options.limits.buffered_bytes),
      admitted(options.limits.connections) {}

bool ServerCore::admit(const std::string& address) {
  if (admitted.take(address, 1)) return true;
  std::shared_ptr<Connection> longest;
  for (const auto& connection : all_connections())
    if (connection->idle_since() != 0 && connection->address() == address &&
        (!longest || connection->idle_since() < longest->idle_since()))
      longest = connection;
  if (!longest) return false;
  longest->give_way();
  return admitted.take(address, 1);
}

void ServerCore::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(connection.get());
}

void ServerCore::remove(Connection* connection) {
  {
    const std::lock_guard lock(mutex_);
    if (connections_.erase(connection) == 0) return;
    connection->leave();
    fewer_.notify_all();
  }
  if (on_room) on_room();
}

size_t ServerCore::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::vector<std::shared_ptr<Connection>> ServerCore::all_connections() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> out;
  for (Connection* connection : connections_)
    if (auto held = connection->weak_from_this().lock()) out.push_back(std::move(held));
  return out;
}

void ServerCore::begin_exchange() {
  const std::lock_guard lock(mutex_);
  ++exchanges_;
}

void ServerCore::end_exchange() {
  const std::lock_guard lock(mutex_);
  if (--exchanges_ == 0) fewer_.notify_all();
}

size_t ServerCore::exchanges() const {
  const std::lock_guard lock(mutex_);
  return exchanges_;
}

bool ServerCore::wait_idle(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return fewer_.wait_for(lock, most, [this] { return exchanges_ == 0; });
}

void ServerCore::wait_closed() {
  std::unique_lock lock(mutex_);
  fewer_.wait(lock, [this] { return connections_.empty(); });
}

bool BufferLease::grow(uint64_t bytes) {
  if (bytes <= bytes_) return true;
  if (!core_->buffered.take(client_, bytes - bytes_)) return false;
  bytes_ = bytes;
  return true;
}

}  // namespace ingot::server
