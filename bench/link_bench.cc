// What a sum of two ranks costs on the link between them: messages of several sizes go both ways at once, as in a step.
//   mpirun -n 2 link_bench      {"bytes": microseconds, ...}, medians
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "collective/mpi_group.h"
#include "core/error.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {589824, 65536, 2304};  // the largest first, which opens the windows of TCP
constexpr int kWork =
    60000;  // additions between two messages: in a step links sleep, and take time from what is computed

double micros_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void work() {
  volatile int sum = 0;
  for (int i = 0; i < kWork; ++i) sum = sum + i;
}

// What it takes where nothing else is done.
double work_us() {
  double least = 1e9;
  for (int i = 0; i < 50; ++i) {
    const auto begin = Clock::now();
    work();
    least = std::min(least, micros_since(begin));
  }
  return least;
}

// What a message adds to the work. Two in a row: the rank that comes late to one is early for the next.
double exchange_us(ingot::Group& group, size_t bytes, double alone_us) {
  std::vector<std::byte> out(bytes), in(bytes);
  std::vector<double> times;
  const int rounds = bytes < 10000 ? 300 : 40;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    for (int j = 0; j < 2; ++j) {
      work();
      group.exchange(1 - group.rank(), out, in);
    }
    times.push_back(micros_since(begin) / 2 - alone_us);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

}  // namespace

int main() {
  try {
    const auto group = ingot::join_mpi(2);
    const double alone_us = work_us();
    std::string line;
    for (const size_t bytes : kSizes)
      line += fmt::format("{}\"{}\": {:.2f}", line.empty() ? "" : ", ", bytes, exchange_us(*group, bytes, alone_us));
    if (group->rank() == 0) fmt::print("{{{}}}\n", line);
  } catch (const ingot::Error& error) {
    fmt::print(stderr, "link_bench: {}\n", error.what());
    return 1;
  }
}
