#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

namespace ingot::server {

// The bytes of one connection, with or without TLS. All calls and callbacks happen on the executor of the socket. At
// most one read and one write are under way at a time.
class Channel {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;

  virtual ~Channel() = default;
  virtual bool needs_handshake() const = 0;
  virtual void handshake(Done done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void write_some(boost::asio::const_buffer from, Done done) = 0;
  // Tells the peer that nothing more will be sent.
  virtual void finish(Done done) = 0;
  // Ends everything at once; what is under way ends with an error.
  virtual void close() = 0;
  virtual boost::asio::any_io_executor executor() = 0;
};

std::unique_ptr<Channel> make_plain_channel(boost::asio::ip::tcp::socket socket);

}  // namespace ingot::server
