#pragma once

#include <string>

#include "collective/mpi_library.h"

namespace ingot {

// This process as one of those that mpirun started, while it lives.
class MpiSession {
 public:
  // Loads MPI. Throws Error(declined) where there is none, or one without threads.
  MpiSession();
  ~MpiSession() { mpi.Finalize(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const MpiLibrary& mpi;
  int rank = 0, size = 1;
  std::string machine;  // its name

  // Ends all processes at once.
  [[noreturn]] void abort() const;
};

}  // namespace ingot
