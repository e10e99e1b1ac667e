#pragma once

#include <memory>

#include "collective/group.h"

namespace ingot {

// The processes that mpirun started, of which there must be `ranks`; the same group for every call. The MPI library
// (Open MPI) is loaded here. Throws Error(bad_call) that says how to start them, or Error(declined) where there is no
// MPI.
std::shared_ptr<Group> join_mpi(int ranks);

}  // namespace ingot
