#pragma once

#include <memory>
#include <string>

#include "server/channel.h"

namespace boost::asio::ssl {
class context;
}

namespace ingot::server {

// What a server needs to speak TLS 1.2 and 1.3.
class Tls {
 public:
  // PEM files: the certificate with its chain, and its key without a passphrase. Throws Error that says which is wrong.
  Tls(const std::string& certificate, const std::string& key);
  ~Tls();

  std::unique_ptr<Channel> wrap(boost::asio::ip::tcp::socket socket);

 private:
  std::unique_ptr<boost::asio::ssl::context> context_;
};

}  // namespace ingot::server
