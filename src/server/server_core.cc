#include "server/server_core.h"

#include <algorithm>

#include "server/connection.h"

namespace ingot::server {

ServerCore::ServerCore(HttpServerOptions given, Handler on_request)
    : options(std::move(given)),
      handler(std::move(on_request)),
      keys(options.api_keys, options.api_key_file),
      cors(options.cors_origins),
      tls(options.tls_certificate.empty() && options.tls_key.empty()
              ? nullptr
              : std::make_unique<Tls>(options.tls_certificate, options.tls_key)),
      workers(static_cast<size_t>(std::max(1, options.worker_threads))) {}

void ServerCore::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(connection.get());
}

void ServerCore::remove(Connection* connection) {
  {
    const std::lock_guard lock(mutex_);
    if (connections_.erase(connection) == 0) return;
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
  const uint64_t more = bytes - bytes_;
  bytes_ = bytes;
  return core_->buffered_bytes.fetch_add(more) + more <= core_->options.limits.buffered_bytes;
}

}  // namespace ingot::server
