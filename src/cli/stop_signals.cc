#include "cli/stop_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "core/error.h"

namespace ingot::cli {
namespace {

// SIGHUP: the terminal it was started from is gone.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// What the handler may touch.
std::atomic<int> write_end{-1};
std::atomic<bool> counting{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_signal(int number) {
  if (!counting) _exit(0);
  const int error = errno;
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t written = write(write_end, &byte, 1);
  errno = error;
}

}  // namespace

StopSignals::StopSignals(bool from_mpirun) {
  int ends[2];
  if (pipe(ends) != 0) throw_error(ErrorKind::io, "no pipe for signals can be made: too many files are open");
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  read_end_ = ends[0];
  write_end = ends[1];
  counting = false;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : kSignals) {
    if (number == SIGUSR1 && !from_mpirun) continue;
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);  // nohup meant it
  }
}

StopSignals::~StopSignals() {
  for (const int number : kSignals) {
    struct sigaction now{};
    sigaction(number, nullptr, &now);
    if (now.sa_handler == on_signal) std::signal(number, SIG_DFL);
  }
  close(read_end_);
  close(write_end.exchange(-1));
}

void StopSignals::begin_counting() { counting = true; }

bool StopSignals::wait(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd readable{read_end_, POLLIN, 0};
    const int ready = poll(&readable, 1, most.count() < 0 ? -1 : static_cast<int>(left > 0 ? left : 0));
    char byte = 0;
    if (ready > 0 && read(read_end_, &byte, 1) == 1) {
      number_ = byte;
      return true;
    }
    if (ready == 0) return false;  // else interrupted: go on
  }
}

}  // namespace ingot::cli
