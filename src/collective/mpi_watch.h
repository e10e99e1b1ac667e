#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collective/mpi_library.h"

namespace ingot {

// Notices ranks that hang: MPI ends a group when a process dies, but waits forever for one that does nothing. Rank 0
// and each of the others say to one another that they live, from a thread of their own. Who hears nothing for about 3
// seconds names the rank and ends the group.
class MpiWatch {
 public:
  // `machines`: of all ranks. `beats`: a communicator for this alone.
  MpiWatch(const MpiLibrary& mpi, MPI_Comm beats, int rank, std::vector<std::string> machines);
  ~MpiWatch();
  MpiWatch(const MpiWatch&) = delete;
  MpiWatch& operator=(const MpiWatch&) = delete;

 private:
  void run();
  bool heard_of(int rank) const;

  const MpiLibrary& mpi_;
  const MPI_Comm beats_;
  const int rank_;
  const std::vector<std::string> machines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ingot
