#include <utility>

#include "server/channel.h"

namespace ingot::server {
namespace {

using boost::asio::ip::tcp;

class PlainChannel : public Channel {
 public:
  explicit PlainChannel(tcp::socket socket) : socket_(std::move(socket)) {}

  bool needs_handshake() const override { return false; }
  void handshake(Done done) override { done({}, 0); }
  void read_some(boost::asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void write_some(boost::asio::const_buffer from, Done done) override {
    socket_.async_write_some(from, std::move(done));
  }
  void finish(Done done) override {
    boost::system::error_code error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    done(error, 0);
  }
  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  boost::asio::any_io_executor executor() override { return socket_.get_executor(); }

 private:
  tcp::socket socket_;
};

}  // namespace

std::unique_ptr<Channel> make_plain_channel(tcp::socket socket) {
  return std::make_unique<PlainChannel>(std::move(socket));
}

}  // namespace ingot::server
