// A link between two network namespaces that has the delay and the bandwidth one asks for: packets go from a TUN device
// in one to a TUN device in the other through this process, which keeps each for as long. For measurements, where the
// kernel has no netem.
//   link_relay NAMESPACE ADDRESS NAMESPACE ADDRESS DELAY_US MBIT     (MBIT 0: as fast as it goes)
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMtu = 65000;

[[noreturn]] void fail(const std::string& what) {
  std::perror(("link_relay: " + what).c_str());
  std::exit(1);
}

void enter(int space) {
  if (setns(space, CLONE_NEWNET) != 0) fail("setns");
}

// The host's end of the link, its device named wire.
int open_end(const std::string& space, const std::string& address) {
  const int home = open("/proc/self/ns/net", O_RDONLY), there = open(("/run/netns/" + space).c_str(), O_RDONLY);
  if (there < 0) fail(space);
  enter(there);
  const int device = open("/dev/net/tun", O_RDWR);
  ifreq request{};
  std::strncpy(request.ifr_name, "wire", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) fail("/dev/net/tun");
  const std::string set = "ip addr add " + address + "/24 dev wire && ip link set wire mtu " + std::to_string(kMtu) +
                          " txqueuelen 10000 up && ip link set lo up";
  if (std::system(set.c_str()) != 0) fail("ip");
  enter(home);
  close(there);
  close(home);
  return device;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// One direction. A packet takes its bytes' time on the wire after the one before it, then the delay.
void carry(int from, int to, std::chrono::nanoseconds delay, double bytes_per_ns) {
  prctl(PR_SET_TIMERSLACK, 1);
  std::deque<Packet> on_the_way;
  Clock::time_point free{};  // the wire
  std::vector<char> buffer(1 << 17);
  for (;;) {
    const Clock::time_point now = Clock::now();
    while (!on_the_way.empty() && on_the_way.front().due <= now) {
      [[maybe_unused]] const ssize_t written =
          write(to, on_the_way.front().bytes.data(), on_the_way.front().bytes.size());
      on_the_way.pop_front();
    }
    timespec most{};
    if (!on_the_way.empty()) {
      const auto left = std::max(std::chrono::nanoseconds(0), on_the_way.front().due - Clock::now());
      most = {left.count() / 1000000000, left.count() % 1000000000};
    }
    pollfd readable{from, POLLIN, 0};
    if (ppoll(&readable, 1, on_the_way.empty() ? nullptr : &most, nullptr) <= 0) continue;
    const ssize_t size = read(from, buffer.data(), buffer.size());
    if (size <= 0) fail("read");
    const auto took =
        std::chrono::nanoseconds(bytes_per_ns > 0 ? static_cast<int64_t>(static_cast<double>(size) / bytes_per_ns) : 0);
    free = std::max(free, Clock::now()) + took;
    on_the_way.push_back({free + delay, {buffer.begin(), buffer.begin() + size}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "link_relay NAMESPACE ADDRESS NAMESPACE ADDRESS DELAY_US MBIT\n");
    return 2;
  }
  const int first = open_end(argv[1], argv[2]), second = open_end(argv[3], argv[4]);
  const std::chrono::nanoseconds delay(static_cast<int64_t>(std::atof(argv[5]) * 1000));
  const double bytes_per_ns = std::atof(argv[6]) / 8000;
  sched_param priority{};
  priority.sched_priority = 20;  // a wire waits for no program
  sched_setscheduler(0, SCHED_FIFO, &priority);
  std::puts("ready");
  std::fflush(stdout);
  std::thread back([&] { carry(second, first, delay, bytes_per_ns); });
  carry(first, second, delay, bytes_per_ns);
}
