#include "server/test_server.h"

#include <filesystem>
#include <stdexcept>

namespace ingot::testing {

namespace {

// The tests say `Host: a`; the wall against that has tests of its own.
HttpServerOptions called_anything(HttpServerOptions options) {
  if (options.allowed_hosts.empty()) options.allowed_hosts = {"*"};
  return options;
}

}  // namespace

TestServer::TestServer(HttpServerOptions options)
    : http_(called_anything(std::move(options)),
            [this](std::shared_ptr<Exchange> exchange) { handle(std::move(exchange)); }) {
  http_.start();
}

TestServer::~TestServer() { http_.stop(); }

void TestServer::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (request.path == "/throw") throw std::runtime_error("on purpose");
  if (request.path == "/drop") return;
  if (request.path == "/echo") {
    HttpReply reply;
    reply.content_type = "text/plain";
    reply.body = request.method + " " + request.path + "?" + request.query + " " + request.body;
    exchange->reply(std::move(reply));
    return;
  }
  const std::lock_guard lock(mutex_);
  exchanges_.push_back(std::move(exchange));
  arrived_.notify_all();
}

std::shared_ptr<Exchange> TestServer::take() {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, std::chrono::seconds(60), [this] { return !exchanges_.empty(); })) return nullptr;
  auto exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  return exchange;
}

int thread_count() {
  std::error_code none;
  const std::filesystem::directory_iterator tasks("/proc/self/task", none);
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace ingot::testing
