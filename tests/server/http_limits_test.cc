// The transport's limits in bytes, time and numbers; how it starts, drains and stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "core/error.h"
#include "server/test_server.h"
#include "soak.h"

namespace ingot::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using test::kSanitized;

// ---- Limits ----

TEST(HttpLimits, ASlowHeadIsCutOff) {
  HttpServerOptions options;
  options.limits.head_time = 200ms;
  TestServer server(options);
  // A byte now and then keeps no connection. (One that is closed before its first byte is told nothing: the first is in
  // time where this thread is not held up.)
  EXPECT_TRUE(eventually([&] {
    RawClient slow(server.port());
    const auto start = std::chrono::steady_clock::now();
    for (const char c : "GET /echo HTTP/1.1\r\nHost: a\r\nX: " + std::string(60, 'y')) {
      if (!slow.send({&c, 1})) break;
      std::this_thread::sleep_for(20ms);
      if (std::chrono::steady_clock::now() - start > 600ms) break;
    }
    const int status = slow.receive().status;
    return status == 408 && slow.closed();
  }));

  RawClient silent(server.port());
  EXPECT_TRUE(silent.closed(60s));
  EXPECT_EQ(silent.received(), "");

  // Nor does a second request have the time that a connection may lie idle. (The first is in time where this thread is
  // not held up.)
  std::unique_ptr<RawClient> second;
  EXPECT_TRUE(eventually([&] {
    second = std::make_unique<RawClient>(server.port());
    second->send(kGet);
    return second->receive(false).status == 200;
  }));
  second->send("GET /echo HTTP/1.1\r\n");
  EXPECT_EQ(second->receive().status, 408);
}

TEST(HttpLimits, ASlowBodyIsCutOff) {
  HttpServerOptions options;
  options.limits.body_time = 200ms;
  options.limits.body_rate = 40;
  TestServer server(options);
  RawClient slow(server.port());
  slow.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
  EXPECT_EQ(slow.receive().status, 408);
  // At the least rate it may take longer than body_time: 400 bytes are worth ten seconds.
  RawClient steady(server.port());
  steady.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 401\r\n\r\n" + std::string(400, 'x'));
  std::this_thread::sleep_for(350ms);
  steady.send("x");
  EXPECT_EQ(steady.receive().status, 200);
}

TEST(HttpLimits, IdleConnectionsAreClosed) {
  HttpServerOptions options;
  options.limits.idle_time = 100ms;
  TestServer server(options);
  RawClient client(server.port());
  client.send(kGet);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.closed(60s));
  EXPECT_EQ(client.received(), "");
}

TEST(HttpLimits, SizesAreLimited) {
  HttpServerOptions options;
  options.limits.body_bytes = 1000;
  TestServer server(options);
  const auto status = [&](const std::string& request) {
    RawClient client(server.port());
    client.send(request);
    const RawReply reply = client.receive();
    if (reply.status != 200) {
      EXPECT_EQ(reply.header("connection"), "close");
      EXPECT_THAT(reply.body, HasSubstr("\"type\":\"invalid_request_error\""));
    }
    return reply.status;
  };
  const std::string chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status(post("/echo", std::string(1000, 'x'))), 200);
  EXPECT_EQ(status(post("/echo", std::string(1001, 'x'))), 413);
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"), 413);  // before any of it
  EXPECT_EQ(
      status(chunked + "1f4\r\n" + std::string(500, 'x') + "\r\n1f4\r\n" + std::string(500, 'x') + "\r\n0\r\n\r\n"),
      200);
  EXPECT_EQ(status(chunked + "1f4\r\n" + std::string(500, 'x') + "\r\n1f5\r\n"), 413);
  EXPECT_EQ(status(get("/echo", "X: " + std::string(16000, 'x') + "\r\n")), 200);
  EXPECT_EQ(status(get("/echo", "X: " + std::string(17000, 'x') + "\r\n")), 431);
  EXPECT_EQ(status("GET /" + std::string(17000, 'x')), 431);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "X: y\r\n";
  EXPECT_EQ(status(get("/echo", many)), 431);
  // All of a refused body may be sent, and the reply still arrives.
  EXPECT_EQ(status(post("/echo", std::string(4 << 20, 'x'))), 413);
}

TEST(HttpLimits, BodiesTogetherAreLimited) {
  HttpServerOptions options;
  options.limits.buffered_bytes = 150'000;
  TestServer server(options);
  RawClient first(server.port());
  first.send(post("/wait", std::string(100'000, 'x')));
  auto exchange = server.take();
  ASSERT_TRUE(exchange);
  RawClient second(server.port());
  second.send(post("/echo", std::string(100'000, 'x')));
  const RawReply refused = second.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  second.close();
  exchange->reply({});
  exchange.reset();
  EXPECT_EQ(first.receive().status, 200);
  EXPECT_TRUE(eventually([&] {
    RawClient third(server.port());
    third.send(post("/echo", std::string(100'000, 'x')));
    return third.receive().status == 200;
  }));
}

TEST(HttpLimits, TooManyConnectionsAreToldSo) {
  HttpServerOptions options;
  options.limits.connections = 3;
  TestServer server(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    // Begun, so not idle; and the answer says that it is known.
    clients.back()->send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(clients.back()->receive().status, 100);
  }
  EXPECT_EQ(server.http().stats().connections, 3u);
  RawClient more(server.port());
  more.send(kGet);
  const RawReply reply = more.receive();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.header("retry-after"), "1");
  EXPECT_TRUE(more.closed());
  more.close();
  clients.pop_back();
  EXPECT_TRUE(eventually([&] {
    RawClient again(server.port());
    again.send(kGet);
    return again.receive().status == 200;
  }));
}

TEST(HttpLimits, IdleConnectionsGiveWay) {
  HttpServerOptions options;
  options.limits.connections = 3;
  TestServer server(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    if (i % 2 == 1) continue;  // some never say anything
    clients.back()->send(kGet);
    EXPECT_EQ(clients.back()->receive().status, 200) << i;
  }
  EXPECT_TRUE(clients[0]->closed()) << "the longest idle";
  clients[10]->send(kGet);
  EXPECT_EQ(clients[10]->receive().status, 200) << "a newer one is left alone";
  EXPECT_TRUE(eventually([&] { return server.http().stats().connections <= 3; }));
}

// Whatever the workers do, a probe is answered.
TEST(HttpLimits, ProbesDoNotWaitForWork) {
  std::atomic<bool> go_on{false};
  HttpServerOptions options;
  options.allowed_hosts = {"*"};
  HttpServer server(options, [&](std::shared_ptr<Exchange> exchange) {
    if (exchange->request().method == "POST")
      while (!go_on) std::this_thread::sleep_for(1ms);
    exchange->reply({.body = "{}"});
  });
  server.start();
  std::vector<std::unique_ptr<RawClient>> busy;
  for (int i = 0; i < 12; ++i) {
    busy.push_back(std::make_unique<RawClient>(server.port()));
    busy.back()->send(post("/work", "{}"));
  }
  ASSERT_TRUE(eventually([&] { return server.stats().exchanges == 12; }));
  RawClient probe(server.port());
  probe.send(get("/health"));
  EXPECT_EQ(probe.receive().status, 200);
  go_on = true;
  for (auto& client : busy) EXPECT_EQ(client->receive().status, 200);
  server.stop();
}

TEST(HttpLimits, SurvivesRunningOutOfFileDescriptors) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own checks need file descriptors";
  TestServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(std::make_unique<RawClient>(server.port()));
  ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 8; }));
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  // A client's socket exists already; the accept of it finds no descriptor.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  ::close(fd);
  rlimit tight = old;
  tight.rlim_cur = static_cast<rlim_t>(fd) + 1;
  setrlimit(RLIMIT_NOFILE, &tight);
  RawClient starved(server.port());
  ASSERT_TRUE(starved.connected());
  starved.send(kGet);
  const RawReply nothing = starved.receive(false, 300ms);
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(nothing.status, 0);
  EXPECT_EQ(starved.receive().status, 200);
}

// ---- Start, drain, stop ----

TEST(HttpLimits, AddressesAndPorts) {
  HttpServerOptions options;
  TestServer first;
  options.port = first.port();
  const auto failure = [](const HttpServerOptions& wrong) {
    HttpServer server(wrong, [](std::shared_ptr<Exchange>) {});
    try {
      server.start();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(failure(options), HasSubstr("is in use by another program: choose another with --port"));
  options.port = 0;
  options.host = "203.0.113.7";
  EXPECT_THAT(failure(options), HasSubstr("--host 203.0.113.7: is not an address of this machine"));
  options.host = "not an address";
  EXPECT_THAT(failure(options), HasSubstr("--host not an address: is neither an address nor a known name"));
  EXPECT_EQ(first.http().url(), "http://127.0.0.1:" + std::to_string(first.port()));
}

TEST(HttpLimits, SpeaksIpv6) {
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has_ipv6 = probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) ::close(probe);
  if (!has_ipv6) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  for (const char* host : {"::1", "[::1]"}) {
    HttpServerOptions options;
    options.host = host;
    TestServer server(options);
    EXPECT_THAT(server.http().url(), StartsWith("http://[::1]:"));
    RawClient client(server.port(), true);
    client.send(get("/peer"));
    const auto exchange = server.take();
    ASSERT_TRUE(exchange);
    EXPECT_THAT(exchange->request().peer, StartsWith("[::1]:"));
    exchange->reply({});
    EXPECT_EQ(client.receive().status, 200);
  }
}

TEST(HttpLimits, DrainsRunningStreams) {
  TestServer server;
  RawClient idle(server.port());
  idle.send(kGet);
  EXPECT_EQ(idle.receive().status, 200);
  RawClient running(server.port());
  running.send(get("/stream"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  const auto source = std::make_shared<TestSource>();
  exchange->stream({}, source);
  running.receive_until("\r\n\r\n");

  server.http().begin_drain();
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(server.http().wait_drained(50ms));
  // A new connection still reaches the handler, once.
  RawClient late(server.port());
  late.send(kGet);
  const RawReply reply = late.receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(late.closed());

  source->write("the end");
  source->end();
  exchange->wake();
  EXPECT_EQ(running.receive().body, "the end");
  EXPECT_TRUE(server.http().wait_drained(60s));
  EXPECT_TRUE(running.closed());
}

TEST(HttpLimits, StopCutsEverything) {
  auto server = std::make_unique<TestServer>();
  RawClient client(server->port());
  client.send(get("/stream"));
  auto exchange = server->take();
  ASSERT_TRUE(exchange);
  std::atomic<bool> told{false};
  exchange->on_disconnect([&] { told = true; });
  const auto source = std::make_shared<TestSource>();
  exchange->stream({}, source);
  client.receive_until("\r\n\r\n");
  server->http().stop();
  EXPECT_TRUE(told);
  EXPECT_TRUE(client.closed());
  server.reset();
  exchange->wake();  // the exchange outlives its server
  exchange.reset();
}

TEST(HttpLimits, StopsWhileClientsComeAndGo) {
  for (int round = 0; round < 10; ++round) {
    auto server = std::make_unique<TestServer>();
    const uint16_t port = server->port();
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        while (!done) {
          RawClient client(port);
          if (!client.connected()) continue;
          client.send(i % 2 == 0 ? kGet : get("/drop"));
          if (i < 2) client.receive(false, 1s);
        }
      });
    std::this_thread::sleep_for(20ms);
    server.reset();
    done = true;
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace ingot::testing
