#include "server/tls.h"

#include <openssl/ssl.h>

#include <boost/asio/ssl.hpp>
#include <fstream>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace ingot::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class TlsChannel : public Channel {
 public:
  TlsChannel(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  bool needs_handshake() const override { return true; }
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](boost::system::error_code error) { done(error, 0); });
  }
  void read_some(asio::mutable_buffer into, Done done) override { stream_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Done done) override { stream_.async_write_some(from, std::move(done)); }
  void finish(Done done) override {
    // Ends when the peer says goodbye too, or when the connection is closed; the owner's deadline sees to that.
    stream_.async_shutdown([done = std::move(done)](boost::system::error_code error) { done(error, 0); });
  }
  void close() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
  }
  asio::any_io_executor executor() override { return stream_.get_executor(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

bool can_read(const std::string& path) { return std::ifstream(path).good(); }

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered,
                    unsigned int offered_length, void*) {
  static const unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* out = nullptr;
  if (SSL_select_next_proto(&out, length, kHttp11, sizeof kHttp11, offered, offered_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Tls::Tls(const std::string& certificate, const std::string& key)
    : context_(std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server)) {
  if (certificate.empty() || key.empty())
    throw_error(ErrorKind::bad_call, "--tls-cert and --tls-key must be given together");
  for (const auto& [flag, path] : {std::pair{"--tls-cert", &certificate}, std::pair{"--tls-key", &key}})
    if (!can_read(*path)) throw_error(ErrorKind::io, "{} {}: cannot be read", flag, *path);
  SSL_CTX* native = context_->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);  // an idle connection holds no record buffers
  SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
  // Without this OpenSSL would ask for a passphrase on the terminal.
  context_->set_password_callback([](size_t, asio::ssl::context::password_purpose) { return std::string(); });
  boost::system::error_code error;
  context_->use_certificate_chain_file(certificate, error);
  if (error)
    throw_error(ErrorKind::bad_file, "--tls-cert {}: is not a PEM certificate ({})", certificate, error.message());
  context_->use_private_key_file(key, asio::ssl::context::pem, error);
  if (error)
    throw_error(ErrorKind::bad_file,
                "--tls-key {}: is not the certificate's PEM key, or it has a passphrase, which must be removed ({})",
                key, error.message());
  if (SSL_CTX_check_private_key(native) != 1)
    throw_error(ErrorKind::bad_file, "--tls-key {}: does not belong to the certificate {}", key, certificate);
}

Tls::~Tls() = default;

std::unique_ptr<Channel> Tls::wrap(tcp::socket socket) {
  return std::make_unique<TlsChannel>(std::move(socket), *context_);
}

}  // namespace ingot::server
