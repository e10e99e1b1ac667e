#pragma once

#include <string>
#include <vector>

namespace ingot::cli {

// How a command starts itself once more, in processes of its own.
struct Launch {
  int ranks = 1;       // more than one: by mpirun
  std::string mpirun;  // how it is called, its options included, separated by spaces
  int most = 0;        // restarts within an hour
};

// Takes note of how this program was called, for supervise().
void remember_call(int argc, char** argv);

// Runs this program as it was called but for --restart, anew whenever it ends by a fault: after a second, then after
// twice as long each time, up to half a minute. SIGINT and SIGTERM are passed on: the first lets the program drain, the
// second ends it. Returns when it ended by itself or by a signal of ours; throws Error when it failed too often, or
// when it was called wrongly.
void supervise(const Launch& launch);

// `arguments` without --restart and --mpirun and their values, and with the first off.
std::vector<std::string> without_restart(const std::vector<std::string>& arguments);

}  // namespace ingot::cli
