#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ingot::server {

// Threads for work that clients send. Whose work runs least at the moment goes next, and between equals whoever was
// served longest ago: a client that sends much waits for itself. No client has all the threads. Jobs do not throw.
class FairWorkers {
 public:
  enum class Manners { usual, yielding };  // yielding: threads that stand back for all others (where the system can)

  // At most `each` jobs of one client run at a time, on one thread more than that if `each` is above 1.
  explicit FairWorkers(int each, Manners manners = Manners::usual);
  ~FairWorkers() { stop(); }

  void post(const std::string& client, std::function<void()> job);  // dropped after stop()
  void stop();  // waits for the running jobs, unless the caller is one; the others are dropped

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // also held by the threads, of which one may outlive this object by its last job
  std::vector<std::thread> threads_;
};

}  // namespace ingot::server
