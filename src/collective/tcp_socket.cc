#include "collective/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.h"

namespace ingot {
namespace {

constexpr int kBacklog = 64;

// A connection that others have closed is an error of the call, not a signal.
#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

void set_option(int fd, int level, int name) {
  const int on = 1;
  ::setsockopt(fd, level, name, &on, sizeof on);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// Numbers only: names are resolved by whoever hands out addresses.
std::unique_ptr<addrinfo, FreeAddresses> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list); rc != 0)
    throw_error(ErrorKind::io, "{}: is not an IP address ({})", host, ::gai_strerror(rc));
  return std::unique_ptr<addrinfo, FreeAddresses>(list);
}

}  // namespace

TcpSocket::TcpSocket(int fd) : fd_(fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
#ifdef SO_NOSIGPIPE
  set_option(fd, SOL_SOCKET, SO_NOSIGPIPE);
#endif
}

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

TcpSocket TcpSocket::listen(const std::string& host) {
  const auto place = resolve(host, "0");
  const int fd = ::socket(place->ai_family, SOCK_STREAM, 0);
  if (fd < 0) throw_error(ErrorKind::io, "{}: no socket, {}", host, std::strerror(errno));
  TcpSocket socket(fd);
  if (::bind(fd, place->ai_addr, place->ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0)
    throw_error(ErrorKind::io, "{}: cannot listen there, {}", host, std::strerror(errno));
  return socket;
}

std::string TcpSocket::address() const {
  sockaddr_storage place{};
  socklen_t size = sizeof place;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&place), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&place), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw_error(ErrorKind::io, "a socket has no address: {}", std::strerror(errno));
  return place.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::optional<TcpSocket> TcpSocket::accept() const {
  const int fd = ::accept(fd_, nullptr, nullptr);
  if (fd < 0) return std::nullopt;
  return TcpSocket(fd);
}

TcpSocket TcpSocket::connect(const std::string& address, Clock::time_point until) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) throw_error(ErrorKind::io, "{}: is not HOST:PORT", address);
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const auto place = resolve(host, address.substr(colon + 1));
  const int fd = ::socket(place->ai_family, SOCK_STREAM, 0);
  if (fd < 0) throw_error(ErrorKind::io, "{}: no socket, {}", address, std::strerror(errno));
  TcpSocket socket(fd);
  int error = ::connect(fd, place->ai_addr, place->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof error;
    if (!socket.wait(true, until))
      error = ETIMEDOUT;
    else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  if (error != 0) throw_error(ErrorKind::io, "{}: cannot connect, {}", address, std::strerror(error));
  return socket;
}

ptrdiff_t TcpSocket::write_some(std::span<const std::byte> bytes) const {
  const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), kSendFlags);
  if (count >= 0) return count;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

ptrdiff_t TcpSocket::read_some(std::span<std::byte> bytes) const {
  const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (count > 0) return count;
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

bool TcpSocket::write(std::span<const std::byte> bytes, Clock::time_point until) const {
  while (!bytes.empty()) {
    const ptrdiff_t count = write_some(bytes);
    if (count < 0 || (count == 0 && !wait(true, until))) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool TcpSocket::read(std::span<std::byte> bytes, Clock::time_point until) const {
  while (!bytes.empty()) {
    const ptrdiff_t count = read_some(bytes);
    if (count < 0 || (count == 0 && !wait(false, until))) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool TcpSocket::wait(bool to_write, Clock::time_point until) const {
  for (;;) {
    pollfd one{.fd = fd_, .events = static_cast<short>(to_write ? POLLOUT : POLLIN), .revents = 0};
    const int count = ::poll(&one, 1, milliseconds_until(until));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

int milliseconds_until(TcpSocket::Clock::time_point until) {
  if (until == TcpSocket::Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TcpSocket::Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

}  // namespace ingot
