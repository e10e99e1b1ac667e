#pragma once

#include <memory>

#include "collective/group.h"
#include "collective/mpi_session.h"

namespace ingot {

// The processes that mpirun started, connected by TCP of our own (tcp_group.h). MPI sends nothing between them:
// mpirun's daemons, which have connections of their own, pass on where each rank listens. `is_far`: not all are on one
// machine. A rank that cannot connect says so and ends all of them.
std::shared_ptr<Group> connect_by_tcp(std::shared_ptr<MpiSession> session, bool is_far);

}  // namespace ingot
