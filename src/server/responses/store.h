#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ingot::server::responses {

// A response that was given, as its JSON texts.
struct StoredResponse {
  std::string response;  // the object that was answered with
  std::string items;     // a list: all that it answers to, that of the responses before it included
};

// The last responses, for whoever made them: `tenant` is the holder of a key, and another's are as if they did not
// exist. Bounded in bytes and number; the oldest of who holds the most bytes goes first, so that nobody can push out
// what others keep. Thread-safe.
class ResponseStore {
 public:
  struct Limits {
    uint64_t bytes = 64 << 20;
    int64_t responses = 1000;
  };
  explicit ResponseStore(const Limits& limits) : limits_(limits) {}

  // Takes the place of one with the same id. One that is larger than all there may be is not kept.
  void put(const std::string& tenant, const std::string& id, StoredResponse response);
  std::shared_ptr<const StoredResponse> find(const std::string& tenant, const std::string& id) const;  // or null
  bool erase(const std::string& tenant, const std::string& id);                                        // it was there

  struct Held {
    uint64_t bytes = 0;
    int64_t responses = 0;
  };
  Held held() const;

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    uint64_t bytes;
  };
  struct Shelf {               // of one tenant
    std::list<Entry> entries;  // oldest first
    std::map<std::string, std::list<Entry>::iterator> by_id;
    uint64_t bytes = 0;
  };
  bool remove(const std::string& tenant, const std::string& id);  // with the lock held, as the next ones
  void drop(std::map<std::string, Shelf>::iterator shelf, std::list<Entry>::iterator entry);
  void make_room();

  const Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Shelf> shelves_;  // by tenant; none is empty
  Held held_;
};

}  // namespace ingot::server::responses
