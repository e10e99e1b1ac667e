#include "cli/pty.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>

namespace ingot::testing {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Pty::Pty(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal_ < 0 || grantpt(terminal_) != 0 || unlockpt(terminal_) != 0) throw std::runtime_error("no terminal");
  const std::string name = ptsname(terminal_);
  const winsize size = {.ws_row = 40, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  ioctl(terminal_, TIOCSWINSZ, &size);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ != 0) return;
  setsid();
  const int own = open(name.c_str(), O_RDWR);
  ioctl(own, TIOCSCTTY, 0);
  for (int fd : {0, 1, 2}) dup2(own, fd);
  close(own);
  close(terminal_);
  for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

Pty::~Pty() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(terminal_);
}

void Pty::type(const std::string& keys) {
  for (size_t done = 0; done < keys.size();) {
    const ssize_t written = write(terminal_, keys.data() + done, keys.size() - done);
    if (written <= 0) throw std::runtime_error("the terminal is gone");
    done += static_cast<size_t>(written);
  }
}

bool Pty::read_some(double seconds) {
  pollfd poll_for = {.fd = terminal_, .events = POLLIN, .revents = 0};
  if (poll(&poll_for, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char buffer[4096];
  const ssize_t count = read(terminal_, buffer, sizeof buffer);
  if (count <= 0) {  // EIO: the program has closed its side
    closed_ = true;
    return false;
  }
  output_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool Pty::expect(const std::string& text, double seconds) {
  for (const double end = now() + seconds;;) {
    const size_t at = output_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (now() >= end || closed_) return false;
    read_some(0.1);
  }
}

int Pty::wait(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
    if (closed_)
      usleep(10'000);
    else
      read_some(0.05);
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      while (!closed_ && read_some(0)) continue;
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
  return -1;
}

}  // namespace ingot::testing
