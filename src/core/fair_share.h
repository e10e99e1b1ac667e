#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace ingot {

// A limit that clients share. One alone may have all of it. Where others hold something too, a client within its equal
// part is served even from a reserve above the limit, and one beyond it only while a quarter of the limit is free: so
// nobody can fill the server for the others. Thread-safe.
class FairShare {
 public:
  explicit FairShare(uint64_t limit) : limit_(limit) {}

  // False, and nothing is taken, when that is more than there is for this client now.
  bool take(const std::string& client, uint64_t amount);
  void give(const std::string& client, uint64_t amount);

  uint64_t limit() const { return limit_; }
  uint64_t used() const;

 private:
  const uint64_t limit_;
  mutable std::mutex mutex_;
  uint64_t used_ = 0;
  std::unordered_map<std::string, uint64_t> clients_;  // those that hold something
};

}  // namespace ingot
