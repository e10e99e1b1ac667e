#include "collective/tcp_meeting.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "core/error.h"

namespace ingot {
namespace {

using Clock = TcpSocket::Clock;

constexpr uint32_t kMark = 0x31676e49;  // "Ing1"
constexpr size_t kHalf = std::tuple_size_v<TcpKey> / 2;
constexpr std::chrono::seconds kHelloPatience{5};     // with somebody who has connected
constexpr std::chrono::seconds kConnectPatience{10};  // with an address that may not be reached from here
constexpr size_t kMostPending = 64;

// The first bytes of a connection.
struct Hello {
  uint32_t mark = kMark;
  uint32_t rank = 0, link = 0;  // who it is, and which of the two links
  std::array<std::byte, kHalf> key{};
};

std::array<std::byte, kHalf> half_of(const TcpKey& key, size_t which) {
  std::array<std::byte, kHalf> half{};
  std::copy_n(key.begin() + static_cast<ptrdiff_t>(which * kHalf), kHalf, half.begin());
  return half;
}

// In a time that does not tell where they differ.
bool is_same(const std::array<std::byte, kHalf>& a, const std::array<std::byte, kHalf>& b) {
  std::byte differences{};
  for (size_t i = 0; i < a.size(); ++i) differences |= a[i] ^ b[i];
  return differences == std::byte{};
}

TcpSocket& link_of(TcpLinks& links, uint32_t which) { return which == 0 ? links.steps : links.words; }

TcpSocket call_at(const std::string& address, uint32_t rank, uint32_t link, const TcpKey& key,
                  Clock::time_point until) {
  TcpSocket socket = TcpSocket::connect(address, std::min(until, Clock::now() + kConnectPatience));
  const Hello hello{.rank = rank, .link = link, .key = half_of(key, 0)};
  std::array<std::byte, kHalf> answer{};
  if (!socket.write(std::as_bytes(std::span(&hello, 1)), until) || !socket.read(answer, until))
    throw_error(ErrorKind::io, "{}: did not let this rank in", address);
  if (!is_same(answer, half_of(key, 1))) throw_error(ErrorKind::io, "{}: is not of this group", address);
  return socket;
}

// At the first of its addresses where it lets this rank in.
TcpSocket call(const std::string& addresses, uint32_t rank, uint32_t link, const TcpKey& key, Clock::time_point until) {
  std::istringstream all(addresses);
  std::string failure = "a rank has no address";
  for (std::string address; all >> address;) try {
      return call_at(address, rank, link, key, until);
    } catch (const Error& error) {
      failure = error.what();
    }
  throw Error(ErrorKind::io, failure);
}

// Somebody who has connected and not yet said all of who he is.
struct Caller {
  TcpSocket socket;
  std::array<std::byte, sizeof(Hello)> said{};
  size_t count = 0;
  Clock::time_point until;
};

// Lets in the ranks above this one.
class Door {
 public:
  Door(const TcpSocket& listener, uint32_t rank, std::vector<TcpLinks>& links, const TcpKey& key)
      : listener_(listener), rank_(rank), links_(links), key_(key) {}

  void open(Clock::time_point until) {
    while (const std::optional<size_t> missing = absent()) {
      if (Clock::now() >= until) throw_error(ErrorKind::io, "rank {} did not connect to rank {}", *missing, rank_);
      std::vector<pollfd> waiting = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
      for (const Caller& caller : callers_)
        waiting.push_back({.fd = caller.socket.fd(), .events = POLLIN, .revents = 0});
      ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()), std::min(milliseconds_until(until), 250));
      std::erase_if(callers_, [this](Caller& caller) { return is_done(caller); });
      while (std::optional<TcpSocket> socket = listener_.accept()) {
        if (callers_.size() == kMostPending) callers_.erase(callers_.begin());
        callers_.push_back({.socket = std::move(*socket), .until = Clock::now() + kHelloPatience});
      }
    }
  }

 private:
  std::optional<size_t> absent() const {
    for (size_t peer = rank_ + 1; peer < links_.size(); ++peer)
      if (links_[peer].steps.fd() < 0 || links_[peer].words.fd() < 0) return peer;
    return std::nullopt;
  }

  // Whether nothing more is expected of him here: he was let in, or sent away.
  bool is_done(Caller& caller) {
    const ptrdiff_t count = caller.socket.read_some(std::span(caller.said).subspan(caller.count));
    if (count < 0 || Clock::now() > caller.until) return true;
    caller.count += static_cast<size_t>(count);
    if (caller.count < caller.said.size()) return false;
    Hello hello;
    std::memcpy(&hello, caller.said.data(), sizeof hello);
    if (hello.mark != kMark || !is_same(hello.key, half_of(key_, 0))) return true;
    if (hello.rank <= rank_ || hello.rank >= links_.size() || hello.link > 1) return true;
    TcpSocket& link = link_of(links_[hello.rank], hello.link);
    if (link.fd() >= 0 || !caller.socket.write(half_of(key_, 1), caller.until)) return true;
    link = std::move(caller.socket);
    return true;
  }

  const TcpSocket& listener_;
  const uint32_t rank_;
  std::vector<TcpLinks>& links_;
  const TcpKey& key_;
  std::vector<Caller> callers_;
};

}  // namespace

std::vector<TcpLinks> meet(const TcpSocket& listener, int rank, const std::vector<std::string>& addresses,
                           const TcpKey& key, Clock::time_point until) {
  std::vector<TcpLinks> links(addresses.size());
  const auto own = static_cast<uint32_t>(rank);
  for (size_t peer = 0; peer < own; ++peer)
    for (const uint32_t link : {0u, 1u}) link_of(links[peer], link) = call(addresses[peer], own, link, key, until);
  Door(listener, own, links, key).open(until);
  return links;
}

}  // namespace ingot
