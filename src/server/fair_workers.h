#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ingot::server {

// Threads for work that clients send. Whose work runs least at the moment goes next, and between equals whoever was
// served longest ago: a client that sends much waits for itself. No client has all the threads, and jobs that are large
// together wait for each other. Jobs do not throw.
class FairWorkers {
 public:
  enum class Manners { usual, yielding };  // yielding: threads that stand back for all others (where the system can)

  // At most `each` jobs of one client run at a time, on one thread more than that if `each` is above 1; and of all
  // clients no more than have `most_bytes` together, though always one.
  explicit FairWorkers(int each, Manners manners = Manners::usual, uint64_t most_bytes = UINT64_MAX);
  ~FairWorkers() { stop(); }

  // `bytes`: how large what it works on is. Dropped after stop().
  void post(const std::string& client, std::function<void()> job, uint64_t bytes = 0);
  void stop();  // waits for the running jobs, unless the caller is one; the others are dropped

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // also held by the threads, of which one may outlive this object by its last job
  std::vector<std::thread> threads_;
};

}  // namespace ingot::server
