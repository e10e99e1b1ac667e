#include "collective/mpi_session.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/error.h"

namespace ingot {
namespace {

constexpr std::chrono::milliseconds kAbort{300};  // it asks the daemon of mpirun, which may be gone too

}  // namespace

MpiSession::MpiSession() : mpi(mpi_library()) {
  int provided = 0;
  mpi.Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE)
    throw_error(ErrorKind::declined, "the MPI library here is built without threads (MPI_THREAD_MULTIPLE)");
  mpi.Comm_rank(mpi.world, &rank);
  mpi.Comm_size(mpi.world, &size);
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  mpi.Get_processor_name(name, &length);
  machine.assign(name, static_cast<size_t>(length));
}

void MpiSession::abort() const {
  std::thread([] {
    std::this_thread::sleep_for(kAbort);
    std::_Exit(1);
  }).detach();
  mpi.Abort(mpi.world, 1);
  std::_Exit(1);
}

}  // namespace ingot
