#pragma once

#include <string>

#include "collective/mpi_library.h"

namespace ingot {

// This process as one of those that mpirun started, while it lives.
class MpiSession {
 public:
  // Loads MPI. Throws Error(declined) where there is none, or one without threads.
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const MpiLibrary& mpi;
  int rank = 0, size = 1;
  std::string machine;  // its name

  // What the other ranks on this machine find this process by: a word.
  static std::string process();
  // What rank 0 has said of itself.
  void leader_is(const std::string& process);

  // Ends all processes at once. A rank 0 of this machine that hangs is ended right here, since mpirun first wakes it,
  // and gives it a second: `leader_hangs`.
  [[noreturn]] void abort(bool leader_hangs = false) const;

 private:
  int leader_ = -1;  // a pidfd of rank 0, where this is another rank of its machine
};

}  // namespace ingot
