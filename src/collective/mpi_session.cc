#include "collective/mpi_session.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "core/error.h"

namespace ingot {
namespace {

constexpr std::chrono::milliseconds kAbort{300};  // it asks the daemon of mpirun, which may be gone too

// Where the numbers of processes mean the same; empty: not known.
std::string process_space() {
  std::error_code none;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return none || boot.empty() ? "" : boot + space;
}

}  // namespace

std::string MpiSession::process() { return fmt::format("{}@{}", getpid(), process_space()); }

void MpiSession::leader_is(const std::string& process) {
#ifdef SYS_pidfd_open
  const std::string space = process_space();
  if (rank == 0 || space.empty() || process.substr(process.find('@') + 1) != space) return;
  leader_ = static_cast<int>(syscall(SYS_pidfd_open, std::atoi(process.c_str()), 0));
#else
  static_cast<void>(process);
#endif
}

MpiSession::~MpiSession() {
  if (leader_ >= 0) close(leader_);
  mpi.Finalize();
}

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

void MpiSession::abort(bool leader_hangs) const {
#ifdef SYS_pidfd_send_signal
  if (leader_hangs && leader_ >= 0) syscall(SYS_pidfd_send_signal, leader_, SIGKILL, nullptr, 0);
#else
  static_cast<void>(leader_hangs);
#endif
  std::thread([] {
    std::this_thread::sleep_for(kAbort);
    std::_Exit(1);
  }).detach();
  mpi.Abort(mpi.world, 1);
  std::_Exit(1);
}

}  // namespace ingot
