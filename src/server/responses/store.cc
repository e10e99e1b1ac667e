#include "server/responses/store.h"

#include <algorithm>

namespace ingot::server::responses {
namespace {
constexpr uint64_t kOverhead = 512;  // bytes of an entry beside its texts
}

void ResponseStore::put(const std::string& tenant, const std::string& id, StoredResponse response) {
  const uint64_t bytes = response.response.size() + response.items.size() + 2 * id.size() + kOverhead;
  const std::lock_guard lock(mutex_);
  remove(tenant, id);
  if (bytes > limits_.bytes || limits_.responses <= 0) return;
  Shelf& shelf = shelves_[tenant];
  shelf.entries.push_back({id, std::make_shared<const StoredResponse>(std::move(response)), bytes});
  shelf.by_id[id] = std::prev(shelf.entries.end());
  shelf.bytes += bytes;
  held_.bytes += bytes;
  ++held_.responses;
  make_room();
}

void ResponseStore::drop(std::map<std::string, Shelf>::iterator shelf, std::list<Entry>::iterator entry) {
  held_.bytes -= entry->bytes;
  --held_.responses;
  shelf->second.bytes -= entry->bytes;
  shelf->second.by_id.erase(entry->id);
  shelf->second.entries.erase(entry);
  if (shelf->second.entries.empty()) shelves_.erase(shelf);
}

void ResponseStore::make_room() {
  while (held_.bytes > limits_.bytes || held_.responses > limits_.responses) {
    const auto largest = std::max_element(shelves_.begin(), shelves_.end(),
                                          [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    drop(largest, largest->second.entries.begin());
  }
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(tenant);
  if (shelf == shelves_.end()) return nullptr;
  const auto entry = shelf->second.by_id.find(id);
  return entry == shelf->second.by_id.end() ? nullptr : entry->second->response;
}

bool ResponseStore::erase(const std::string& tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  return remove(tenant, id);
}

bool ResponseStore::remove(const std::string& tenant, const std::string& id) {
  const auto shelf = shelves_.find(tenant);
  if (shelf == shelves_.end()) return false;
  const auto entry = shelf->second.by_id.find(id);
  if (entry == shelf->second.by_id.end()) return false;
  drop(shelf, entry->second);
  return true;
}

ResponseStore::Held ResponseStore::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace ingot::server::responses
