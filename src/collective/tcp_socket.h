#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ingot {

// A TCP connection, or a place where they arrive. Never blocks but in wait(); gone with the object.
class TcpSocket {
 public:
  using Clock = std::chrono::steady_clock;

  TcpSocket() = default;
  explicit TcpSocket(int fd);
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~TcpSocket();

  int fd() const { return fd_; }

  // Listens on an address of this machine, at a port that the system chooses. Throws Error(io).
  static TcpSocket listen(const std::string& host);
  std::string address() const;  // "10.0.0.1:4242", "[::1]:4242": where others connect
  // Whoever has come; nothing: nobody.
  std::optional<TcpSocket> accept() const;
  // Throws Error(io) when nobody answers there by then.
  static TcpSocket connect(const std::string& address, Clock::time_point until);

  // How many bytes went or came; 0: none would now. -1: the connection is gone.
  ptrdiff_t write_some(std::span<const std::byte> bytes) const;
  ptrdiff_t read_some(std::span<std::byte> bytes) const;
  // All of them; false: the connection is gone, or it is too late.
  bool write(std::span<const std::byte> bytes, Clock::time_point until) const;
  bool read(std::span<std::byte> bytes, Clock::time_point until) const;
  // Until something came, or can be written; false: it is too late.
  bool wait(bool to_write, Clock::time_point until) const;

 private:
  int fd_ = -1;
};

// For poll(): what is left, rounded up; at least 0.
int milliseconds_until(TcpSocket::Clock::time_point until);

}  // namespace ingot
