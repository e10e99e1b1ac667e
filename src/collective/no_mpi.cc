#include "collective/mpi_group.h"
#include "core/error.h"

namespace ingot {

std::shared_ptr<Group> join_mpi(int ranks) {
  throw_error(ErrorKind::declined,
              "--tp and --pp ask for {} processes: this program was built without MPI; install libopenmpi-dev "
              "(Homebrew: open-mpi) and build again",
              ranks);
}

}  // namespace ingot
