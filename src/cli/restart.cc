#include "cli/restart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <sstream>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "cli/stop_signals.h"
#include "core/error.h"

namespace ingot::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kBadCall = 2;  // of main.cc: trying again helps nothing
constexpr auto kFirstPause = 1s, kLongestPause = 30s;

std::vector<std::string> call;

std::string program() {
  std::error_code none;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", none);
  return path.empty() ? call.at(0) : path.string();
}

std::vector<std::string> command_of(const Launch& launch) {
  std::vector<std::string> words;
  if (launch.ranks > 1) {
    std::istringstream given(launch.mpirun);
    for (std::string word; given >> word;) words.push_back(word);
    for (const std::string& word : {std::string("-n"), std::to_string(launch.ranks)}) words.push_back(word);
  }
  words.push_back(program());
  for (const std::string& word : without_restart({call.begin() + 1, call.end()})) words.push_back(word);
  return words;
}

pid_t start(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw_error(ErrorKind::io, "no process can be started: {}", std::strerror(errno));
  if (child > 0) return child;
  setpgid(0, 0);  // a terminal's Ctrl-C is for us alone
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
#else
  (void)parent;
#endif
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "ingot: {} cannot be started: {}; install openmpi-bin, or name it by --mpirun\n", arguments[0],
             std::strerror(errno));
  _exit(kBadCall);
}

// Its exit status, and whether it was us who ended it.
struct End {
  int status = 0;
  bool asked = false;
};

End wait_for(pid_t child, bool ranks, StopSignals& signals) {
  End end;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!signals.wait(50ms)) continue;
    // mpirun itself gives ranks two seconds; this one it passes on, and rank 0 drains.
    kill(child, end.asked || !ranks ? SIGTERM : SIGUSR1);
    end.asked = true;
  }
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace

void remember_call(int argc, char** argv) { call.assign(argv, argv + argc); }

std::vector<std::string> without_restart(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--restart" || word == "--mpirun") {
      ++i;
    } else if (!word.starts_with("--restart=") && !word.starts_with("--mpirun=")) {
      kept.push_back(word);
    }
  }
  kept.insert(kept.end(), {"--restart", "0"});  // a file of flags may have it too
  return kept;
}

void supervise(const Launch& launch) {
  StopSignals signals;
  signals.begin_counting();
  const std::vector<std::string> command = command_of(launch);
  std::deque<Clock::time_point> restarts;  // of the last hour
  for (auto pause = kFirstPause;;) {
    const Clock::time_point begun = Clock::now();
    const End end = wait_for(start(command), launch.ranks > 1, signals);
    if (end.status == 0 || end.asked) return;
    if (end.status == kBadCall) throw_error(ErrorKind::bad_call, "it is not started again: the call is wrong");
    const Clock::time_point now = Clock::now();
    while (!restarts.empty() && now - restarts.front() > 1h) restarts.pop_front();
    if (std::ssize(restarts) >= launch.most)
      throw_error(ErrorKind::internal, "it ended with status {}, and was started again {} times within an hour",
                  end.status, restarts.size());
    if (now - begun > 10 * kLongestPause) pause = kFirstPause;
    restarts.push_back(now);
    fmt::print(stderr, "ingot: it ended with status {} and is started again in {} s ({} of {} times an hour)\n",
               end.status, pause.count(), restarts.size(), launch.most);
    if (signals.wait(pause)) return;
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace ingot::cli
