#include "server/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <csignal>
#include <future>
#include <thread>

#include "core/error.h"
#include "server/connection.h"
#include "server/server_core.h"

namespace ingot::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptPause{100};
// Above the limit and the reserve that newcomers have: those are told so; further ones wait in the system's queue.
constexpr size_t kConnectionsAboveLimit = 64;

// Address of a name or number, with or without the brackets of an IPv6 URL. Throws Error.
tcp::endpoint resolve(asio::io_context& io, std::string host, uint16_t port) {
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) return {address, port};
  const auto found = tcp::resolver(io).resolve(host, std::to_string(port), error);
  if (error || found.empty())
    throw_error(ErrorKind::bad_call, "--host {}: is neither an address nor a known name ({})", host, error.message());
  return found.begin()->endpoint();
}

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

// Whose connection it is: of IPv6 the first half, which is one network's.
std::string address_of(const tcp::endpoint& peer) {
  const asio::ip::address& address = peer.address();
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  asio::ip::address_v6::bytes_type bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return asio::ip::address_v6(bytes).to_string();
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions options, Handler handler)
      : core(std::make_shared<ServerCore>(std::move(options), std::move(handler))),
        strand(asio::make_strand(core->io)),
        acceptor(strand),
        pause(strand),
        work(asio::make_work_guard(core->io)) {}

  void bind();
  void accept();
  void on_accept(boost::system::error_code error, tcp::socket socket);
  void run();

  const std::shared_ptr<ServerCore> core;
  const asio::strand<asio::io_context::executor_type> strand;  // of all below but the threads
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  bool accepting = false;  // an accept or a pause is under way
  bool stopping = false;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<std::thread> threads;
  uint16_t port = 0;
  bool stopped = false;
};

void HttpServer::Impl::bind() {
  const HttpServerOptions& options = core->options;
  const tcp::endpoint endpoint = resolve(core->io, options.host, options.port);
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
    boost::system::error_code ignored;  // `::` serves IPv4 too where the system can
    acceptor.set_option(asio::ip::v6_only(false), ignored);
  }
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) {
    port = acceptor.local_endpoint().port();
    return;
  }
  boost::system::error_code ignored;
  acceptor.close(ignored);
  if (error == asio::error::address_in_use)
    throw_error(ErrorKind::io, "port {} of {} is in use by another program: choose another with --port", options.port,
                options.host);
  if (error == asio::error::access_denied)
    throw_error(ErrorKind::io, "port {}: this user may not listen there; choose one above 1023 with --port",
                options.port);
  if (error == boost::system::errc::address_not_available)
    throw_error(ErrorKind::bad_call, "--host {}: is not an address of this machine", options.host);
  throw_error(ErrorKind::io, "cannot listen on {}: {}", to_text(endpoint), error.message());
}

void HttpServer::Impl::accept() {
  if (accepting || stopping) return;
  const size_t most = core->options.limits.connections;
  if (core->connections() >= most + most / 8 + kConnectionsAboveLimit) return;  // on_room comes back
  accepting = true;
  acceptor.async_accept(asio::make_strand(core->io), [this](boost::system::error_code error, tcp::socket socket) {
    accepting = false;
    if (!stopping) on_accept(error, std::move(socket));
  });
}

void HttpServer::Impl::on_accept(boost::system::error_code error, tcp::socket socket) {
  if (error && error != asio::error::connection_aborted) {
    // Most likely no file descriptors are left: wait for some connections to end.
    core->log(
        fmt::format("cannot accept a connection: {}; trying again in {} ms", error.message(), kAcceptPause.count()));
    accepting = true;
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](boost::system::error_code) {
      accepting = false;
      accept();
    });
    return;
  }
  boost::system::error_code gone;
  const tcp::endpoint peer = error ? tcp::endpoint() : socket.remote_endpoint(gone);
  if (!error && !gone) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);  // a token must not wait for the next one
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    const std::string address = address_of(peer);
    const bool over_limit = !core->admit(address);
    auto channel = core->tls ? core->tls->wrap(std::move(socket)) : make_plain_channel(std::move(socket));
    auto connection = std::make_shared<Connection>(core, std::move(channel), to_text(peer), address, over_limit);
    ++core->accepted;
    core->add(connection);
    connection->start();
  }
  accept();
}

void HttpServer::Impl::run() {
  while (true) {
    try {
      core->io.run();
      return;
    } catch (const std::exception& error) {
      core->log(fmt::format("error on an I/O thread: {}", error.what()));
    }
  }
}

HttpServer::HttpServer(HttpServerOptions options, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start() {
  std::signal(SIGPIPE, SIG_IGN);
  impl_->bind();
  Impl* impl = impl_.get();
  impl->core->on_room = [impl] { asio::post(impl->strand, [impl] { impl->accept(); }); };
  asio::post(impl->strand, [impl] { impl->accept(); });
  for (int i = 0; i < std::max(1, impl->core->options.io_threads); ++i)
    impl->threads.emplace_back([impl] { impl->run(); });
}

uint16_t HttpServer::port() const { return impl_->port; }

std::string HttpServer::url() const {
  const HttpServerOptions& options = impl_->core->options;
  const bool bare_v6 = options.host.find(':') != std::string::npos && options.host.front() != '[';
  return fmt::format("{}://{}{}{}:{}", impl_->core->tls ? "https" : "http", bare_v6 ? "[" : "", options.host,
                     bare_v6 ? "]" : "", impl_->port);
}

void HttpServer::begin_drain() {
  impl_->core->draining = true;
  for (const auto& connection : impl_->core->all_connections()) connection->close_if_idle();
}

bool HttpServer::wait_drained(std::chrono::milliseconds most) { return impl_->core->wait_idle(most); }

void HttpServer::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  Impl* impl = impl_.get();
  if (impl->threads.empty()) return;
  std::promise<void> closing;
  asio::post(impl->strand, [impl, &closing] {
    impl->stopping = true;
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
    impl->pause.cancel();
    for (const auto& connection : impl->core->all_connections()) connection->abort();
    closing.set_value();
  });
  closing.get_future().wait();
  impl->core->wait_closed();  // from here on no connection hands work to the workers
  impl->core->workers.stop();
  impl->core->control.stop();
  impl->work.reset();
  for (std::thread& thread : impl->threads) thread.join();
}

HttpServerStats HttpServer::stats() const {
  const ServerCore& core = *impl_->core;
  return {core.connections(), core.exchanges(), core.accepted, core.requests, core.refused, core.disconnects};
}

}  // namespace ingot::server
