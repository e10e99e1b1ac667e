#include "server/raw_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>

namespace ingot::testing {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(left < 0 ? 0 : left);
}

}  // namespace

RawClient::RawClient(uint16_t port, bool ipv6) {
  fd_ = ::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  const auto* address = ipv6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (::connect(fd_, address, ipv6 ? sizeof v6 : sizeof v4) != 0) close();
  const int on = 1;
  if (fd_ >= 0) ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

RawClient::~RawClient() { close(); }

bool RawClient::send(std::string_view bytes) {
  const Clock::time_point until = Clock::now() + std::chrono::seconds(10);
  while (!bytes.empty()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, milliseconds_until(until)) <= 0) return false;
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::wait_readable(std::chrono::milliseconds most) {
  pollfd ready{fd_, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(most.count())) > 0;
}

long RawClient::read_some(char* into, size_t size, std::chrono::milliseconds most) {
  if (!wait_readable(most)) return -1;
  const ssize_t count = ::recv(fd_, into, size, 0);
  return count < 0 ? 0 : count;  // a reset ends the connection too
}

bool RawClient::fill(Clock::time_point until) {
  if (ended_ || fd_ < 0) return false;
  char buffer[65536];
  const long count = read_some(buffer, sizeof buffer, std::chrono::milliseconds(milliseconds_until(until)));
  if (count == 0) ended_ = true;
  if (count <= 0) return false;
  input_.append(buffer, static_cast<size_t>(count));
  return true;
}

RawReply RawClient::receive(bool head_only, std::chrono::milliseconds most) {
  const Clock::time_point until = Clock::now() + most;
  RawReply reply;
  size_t end = 0;
  while ((end = input_.find("\r\n\r\n")) == std::string::npos)
    if (!fill(until)) return reply;
  const std::string head = input_.substr(0, end + 2);
  reply.head = head;
  input_.erase(0, end + 4);
  if (head.rfind("HTTP/1.1 ", 0) != 0) return reply;
  reply.status = std::atoi(head.c_str() + 9);
  for (size_t start = head.find("\r\n") + 2; start < head.size();) {
    const size_t stop = head.find("\r\n", start);
    const size_t colon = head.find(": ", start);
    if (colon == std::string::npos || colon > stop) return reply;
    std::string name = head.substr(start, colon - start);
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
    start = stop + 2;
  }
  const bool no_body = head_only || reply.status < 200 || reply.status == 204 || reply.status == 304;
  if (no_body)
    reply.complete = true;
  else
    receive_body(reply, until);
  return reply;
}

void RawClient::receive_body(RawReply& reply, Clock::time_point until) {
  if (reply.header("transfer-encoding") == "chunked") return receive_chunks(reply, until);
  if (reply.headers.count("content-length") == 0) {  // the close ends it
    while (fill(until)) {
    }
    reply.complete = ended_;
    reply.body.swap(input_);
    return;
  }
  const size_t length = std::strtoull(reply.header("content-length").c_str(), nullptr, 10);
  while (input_.size() < length)
    if (!fill(until)) break;
  reply.complete = input_.size() >= length;
  reply.body = input_.substr(0, length);
  input_.erase(0, length);
}

void RawClient::receive_chunks(RawReply& reply, Clock::time_point until) {
  while (true) {
    size_t line = 0;
    while ((line = input_.find("\r\n")) == std::string::npos)
      if (!fill(until)) return;
    const size_t size = std::strtoull(input_.c_str(), nullptr, 16);
    while (input_.size() < line + 2 + size + 2)
      if (!fill(until)) return;
    reply.body.append(input_, line + 2, size);
    input_.erase(0, line + 2 + size + 2);
    if (size == 0) break;
  }
  reply.complete = true;
}

bool RawClient::receive_until(std::string_view text, std::chrono::milliseconds most) {
  const Clock::time_point until = Clock::now() + most;
  while (input_.find(text) == std::string::npos)
    if (!fill(until)) return false;
  return true;
}

bool RawClient::closed(std::chrono::milliseconds most) {
  const Clock::time_point until = Clock::now() + most;
  while (fill(until)) {
  }
  return ended_;
}

void RawClient::half_close() { ::shutdown(fd_, SHUT_WR); }

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void RawClient::set_receive_buffer(int bytes) { ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); }

}  // namespace ingot::testing
