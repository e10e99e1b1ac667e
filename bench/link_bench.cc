// What a sum of two ranks costs on the link between them: messages of several sizes go both ways at once, as in a step.
//   mpirun -n 2 link_bench WORK_US...     [{"bytes": microseconds, ...}, ...], medians
// WORK_US: what a rank computes between two messages. It decides what a message costs: ranks that soon come to the next
// one are still looking for it when it arrives, others sleep and must be woken.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective/mpi_group.h"
#include "core/error.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {589824, 65536, 2304};  // the largest first, which opens the windows of TCP
constexpr double kLongestUs = 2e6;                  // of measuring one size

double micros_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// So many additions, and not so much time: what links take from it counts as theirs.
void work(int additions) {
  volatile int sum = 0;
  for (int i = 0; i < additions; ++i) sum = sum + i;
}

// What additions take where nothing else is done.
double work_us(int additions) {
  double least = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto begin = Clock::now();
    work(additions);
    least = std::min(least, micros_since(begin));
  }
  return least;
}

// What a message adds to the work. Two in a row: the rank that comes late to one is early for the next.
double exchange_us(ingot::Group& group, size_t bytes, int additions, double nominal_us) {
  const double alone_us = work_us(additions);
  std::vector<std::byte> out(bytes), in(bytes);
  std::vector<double> times;
  const int rounds = std::clamp(static_cast<int>(kLongestUs / (2 * nominal_us)), 20, bytes < 10000 ? 100 : 40);
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    for (int j = 0; j < 2; ++j) {
      work(additions);
      group.exchange(1 - group.rank(), out, in);
    }
    times.push_back(micros_since(begin) / 2 - alone_us);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto group = ingot::join_mpi(2);
    constexpr int kMany = 100000;
    const double addition_us = work_us(kMany) / kMany;
    std::string lines;
    for (int i = 1; i < argc; ++i) {
      const double nominal_us = std::atof(argv[i]);
      const int additions = std::max(1, static_cast<int>(nominal_us / addition_us));
      // The same on both, or one would wait for the other.
      std::vector<std::byte> note(sizeof additions);
      std::memcpy(note.data(), &additions, sizeof additions);
      int agreed = 0;
      std::memcpy(&agreed, group->compare(note)[0].data(), sizeof agreed);
      std::string line;
      for (const size_t bytes : kSizes)
        line += fmt::format("{}\"{}\": {:.2f}", line.empty() ? "" : ", ", bytes,
                            exchange_us(*group, bytes, agreed, nominal_us));
      lines += fmt::format("{}{{{}}}", lines.empty() ? "" : ", ", line);
    }
    if (group->rank() == 0) fmt::print("[{}]\n", lines);
  } catch (const ingot::Error& error) {
    fmt::print(stderr, "link_bench: {}\n", error.what());
    return 1;
  }
}
