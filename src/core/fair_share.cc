#include "core/fair_share.h"

namespace ingot {

bool FairShare::take(const std::string& client, uint64_t amount) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  const uint64_t mine = found == clients_.end() ? 0 : found->second;
  const uint64_t clients = clients_.size() + (mine == 0 ? 1 : 0);
  uint64_t most = limit_;
  if (clients > 1) most = mine + amount <= limit_ / clients ? limit_ + limit_ / 8 : limit_ - limit_ / 4;
  if (amount > most || used_ > most - amount) return false;
  if (amount == 0) return true;
  used_ += amount;
  clients_[client] += amount;
  return true;
}

void FairShare::give(const std::string& client, uint64_t amount) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  used_ -= amount;
  found->second -= amount;
  if (found->second == 0) clients_.erase(found);
}

uint64_t FairShare::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace ingot
