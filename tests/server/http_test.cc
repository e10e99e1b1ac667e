// The transport over real sockets: connections, streams, disconnects, limits, draining.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "core/error.h"
#include "server/test_server.h"

namespace ingot::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

#if defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer);
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// ---- Connections ----

TEST(Http, AnswersAndKeepsTheConnection) {
  TestServer server;
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post("/echo?a=b%20c", "body " + std::to_string(i))));
    const RawReply reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "POST /echo?a=b%20c body " + std::to_string(i));
    EXPECT_EQ(reply.header("content-type"), "text/plain");
    EXPECT_EQ(reply.header("connection"), "");
    EXPECT_EQ(reply.header("x-content-type-options"), "nosniff");
  }
  EXPECT_EQ(server.http().stats().accepted, 1u);
  EXPECT_EQ(server.http().stats().requests, 3u);
}

TEST(Http, ReadsChunkedBodiesInAnyPortions) {
  TestServer server;
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4\r\nWiki\r\n6;name=\"x\"\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nX-Trailer: t\r\n\r\n";
  RawClient client(server.port());
  for (const size_t portion : {request.size(), size_t{1}, size_t{7}}) {
    for (size_t at = 0; at < request.size(); at += portion) ASSERT_TRUE(client.send(request.substr(at, portion)));
    EXPECT_EQ(client.receive().body, "POST /echo? Wikipedia in \r\n\r\nchunks.");
  }
}

TEST(Http, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 200; ++i) all += post(i % 10 == 0 ? "/later" : "/echo", std::to_string(i));
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 200; ++i) {
    if (i % 10 == 0) {
      const auto exchange = server.take();
      ASSERT_TRUE(exchange);
      EXPECT_EQ(exchange->request().body, std::to_string(i));
      exchange->reply({.body = "later " + std::to_string(i)});
      EXPECT_EQ(client.receive().body, "later " + std::to_string(i));
    } else {
      EXPECT_EQ(client.receive().body, "POST /echo? " + std::to_string(i));
    }
  }
}

TEST(Http, ReadsAheadOnlyALittle) {
  HttpServerOptions options;
  options.limits.read_ahead_bytes = 4096;
  TestServer server(options);
  RawClient client(server.port());
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  // Far more than the socket buffers hold: the server must stop taking it.
  std::string more;
  while (more.size() < (64 << 20)) more += post("/echo", std::string(1 << 20, 'x'));
  fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  size_t sent = 0;
  for (int quiet = 0; quiet < 20;) {
    const ssize_t count = ::send(client.fd(), more.data() + sent, more.size() - sent, MSG_NOSIGNAL);
    if (count > 0) sent += static_cast<size_t>(count);
    quiet = count > 0 ? 0 : quiet + 1;
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_LT(sent, more.size() / 2);
  exchange->reply({});
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Http, SpeaksHttp10) {
  TestServer server;
  {
    RawClient client(server.port());
    client.send("GET /echo HTTP/1.0\r\n\r\n");
    const RawReply reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_TRUE(client.closed());
  }
  RawClient client(server.port());
  client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.receive().header("connection"), "keep-alive");
  // A stream has no length, and HTTP/1.0 no chunks: the close ends it.
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  const auto source = std::make_shared<TestSource>();
  source->write("one two");
  source->end();
  exchange->stream({}, source);
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_EQ(reply.body, "one two");
  EXPECT_TRUE(reply.complete);
}

TEST(Http, ClosesWhenAskedTo) {
  TestServer server;
  RawClient client(server.port());
  client.send(get("/echo", "Connection: foo, Close\r\n"));
  EXPECT_EQ(client.receive().header("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST(Http, HeadHasTheLengthAndNoBody) {
  TestServer server;
  RawClient client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n" + kGet);
  const RawReply head = client.receive(true);
  EXPECT_EQ(head.header("content-length"), std::to_string(std::string("GET /echo? ").size()));
  EXPECT_EQ(client.receive().body, "GET /echo? ");

  client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  const auto source = std::make_shared<TestSource>();
  exchange->stream({}, source);
  EXPECT_EQ(client.receive(true).status, 200);
  client.send(kGet);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(source->pulls(), 0u);
}

TEST(Http, SaysContinueBeforeTheBody) {
  TestServer server;
  RawClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 100);
  client.send("body");
  EXPECT_EQ(client.receive().body, "POST /echo? body");
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: a-pony\r\n\r\n");
  EXPECT_EQ(client.receive().status, 417);
}

TEST(Http, RequestIds) {
  TestServer server;
  RawClient client(server.port());
  const auto id_for = [&](const std::string& headers) {
    client.send(get("/echo", headers));
    return client.receive().header("x-request-id");
  };
  EXPECT_EQ(id_for("X-Request-Id: abc-123/~\r\n"), "abc-123/~");
  EXPECT_EQ(id_for("x-request-id:" + std::string(128, 'a') + "\r\n"), std::string(128, 'a'));
  EXPECT_THAT(id_for("X-Request-Id: " + std::string(129, 'a') + "\r\n"), StartsWith("req-"));
  EXPECT_THAT(id_for("X-Request-Id: a b\r\n"), StartsWith("req-"));
  EXPECT_THAT(id_for("X-Request-Id: a\"b\r\n"), StartsWith("req-"));
  EXPECT_THAT(id_for("X-Request-Id: <b>\r\n"), StartsWith("req-"));
  EXPECT_THAT(id_for("X-Request-Id: \xc3\xa4\r\n"), StartsWith("req-"));
  EXPECT_NE(id_for(""), id_for(""));
  client.send("GET /echo HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n");  // refused: no Host
  const RawReply refused = client.receive();
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.header("x-request-id"), "mine");
}

TEST(Http, AHandlerThatFailsIsA500) {
  TestServer server;
  RawClient client(server.port());
  for (const char* path : {"/throw", "/drop"}) {
    client.send(get(path));
    const RawReply reply = client.receive();
    EXPECT_EQ(reply.status, 500) << path;
    EXPECT_THAT(reply.body, HasSubstr("\"type\":\"server_error\"")) << path;
  }
  client.send(kGet);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Http, HeadersCannotBreakOutOfTheirLine) {
  TestServer server;
  RawClient client(server.port());
  client.send(get("/x"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  exchange->reply({.headers = {{"X-Good", "yes"}, {"X-Bad", "a\r\nSet-Cookie: b"}, {"X Bad", "a"}}});
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.header("x-good"), "yes");
  EXPECT_EQ(reply.header("set-cookie"), "");
  EXPECT_THAT(reply.head, ::testing::Not(HasSubstr("Bad")));
}

// ---- Streams ----

TEST(Http, StreamsPieceByPiece) {
  TestServer server;
  RawClient client(server.port());
  client.send(get("/stream"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  const auto source = std::make_shared<TestSource>();
  exchange->stream({.content_type = "text/event-stream"}, source);
  EXPECT_TRUE(client.receive_until("\r\n\r\n"));  // the head comes before there is any text
  EXPECT_THAT(client.received(), HasSubstr("Content-Type: text/event-stream\r\n"));
  for (int i = 0; i < 5; ++i) {
    const std::string piece = "data: " + std::to_string(i) + "\n\n";
    source->write(piece);
    exchange->wake();
    EXPECT_TRUE(client.receive_until(piece)) << i;
  }
  source->end();
  exchange->wake();
  EXPECT_TRUE(client.receive_until("\r\n0\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
  client.send(kGet);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Http, NoWakeUpIsLost) {
  TestServer server;
  constexpr int kClients = 8;
  constexpr int kPieces = 2000;
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int c = 0; c < kClients; ++c)
    threads.emplace_back([&] {
      RawClient client(server.port());
      client.send(get("/stream"));
      const RawReply reply = client.receive(false, 60s);
      std::string expected;
      for (int i = 0; i < kPieces; ++i) expected += std::to_string(i) + ",";
      if (reply.complete && reply.body == expected) ++good;
    });
  std::vector<std::thread> producers;
  for (int c = 0; c < kClients; ++c)
    producers.emplace_back([&] {
      const auto exchange = server.take();
      if (!exchange) return;
      const auto source = std::make_shared<TestSource>();
      exchange->stream({}, source);
      for (int i = 0; i < kPieces; ++i) {
        source->write(std::to_string(i) + ",");
        exchange->wake();
        if (i % 64 == 0) std::this_thread::sleep_for(1ms);  // lets the transport fall idle, so that it must be woken
      }
      source->end();
      exchange->wake();
    });
  for (std::thread& thread : producers) thread.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kClients);
}

TEST(Http, ASlowReaderPullsSeldom) {
  TestServer server;
  RawClient client(server.port());
  client.set_receive_buffer(64 << 10);
  client.send(get("/stream"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  const auto source = std::make_shared<TestSource>();
  exchange->stream({}, source);
  const std::string piece(1 << 20, 'x');
  size_t written = 0;
  // Until the socket's buffers are full and nothing is pulled any more.
  ASSERT_TRUE(eventually([&] {
    if (source->waiting() == 0) {
      source->write(piece);
      written += piece.size();
      exchange->wake();
    }
    const size_t pulls = source->pulls();
    std::this_thread::sleep_for(100ms);
    return source->waiting() > 0 && source->pulls() == pulls;
  }));
  const size_t pulls = source->pulls();
  for (int i = 0; i < 1000; ++i) {
    source->write("y");
    exchange->wake();
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(source->pulls(), pulls);
  // Another client is not held up.
  RawClient other(server.port());
  other.send(kGet);
  EXPECT_EQ(other.receive().status, 200);
  // And once it reads again, nothing is missing.
  source->end();
  exchange->wake();
  const RawReply reply = client.receive(false, 30s);
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.body.size(), written + 1000);
}

TEST(Http, HundredsOfIdleStreamsCostNoThreads) {
  if (thread_count() == 0) GTEST_SKIP() << "this system has no /proc to count threads with";
  TestServer server;
  constexpr int kStreams = 300;
  const int threads = thread_count();
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  std::vector<std::shared_ptr<TestSource>> sources;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    ASSERT_TRUE(clients.back()->connected());
    clients.back()->send(get("/stream"));
    exchanges.push_back(server.take());
    ASSERT_TRUE(exchanges.back());
    sources.push_back(std::make_shared<TestSource>());
    exchanges.back()->stream({}, sources.back());
  }
  EXPECT_EQ(thread_count(), threads);
  EXPECT_EQ(server.http().stats().exchanges, static_cast<size_t>(kStreams));
  RawClient other(server.port());
  other.send(kGet);
  EXPECT_EQ(other.receive().status, 200);
  for (int i = 0; i < kStreams; ++i) {
    sources[i]->write("end " + std::to_string(i));
    sources[i]->end();
    exchanges[i]->wake();
  }
  for (int i = 0; i < kStreams; ++i) EXPECT_EQ(clients[i]->receive().body, "end " + std::to_string(i));
  EXPECT_TRUE(server.http().wait_drained(5s));
}

// ---- Disconnects ----

TEST(Http, ADisconnectIsToldOnce) {
  TestServer server;
  enum How { close, reset, half_close };
  for (const How how : {close, reset, half_close})
    for (const bool streaming : {false, true}) {
      RawClient client(server.port());
      client.send(get("/wait"));
      const auto exchange = server.take();
      ASSERT_TRUE(exchange);
      std::atomic<int> told{0};
      exchange->on_disconnect([&] { ++told; });
      const auto source = std::make_shared<TestSource>();
      if (streaming) {
        exchange->stream({}, source);
        ASSERT_TRUE(client.receive_until("\r\n\r\n"));
      }
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(told, 0);
      if (how == close) client.close();
      if (how == reset) client.reset();
      if (how == half_close) client.half_close();
      EXPECT_TRUE(eventually([&] { return told > 0; })) << how << streaming;
      // What comes later does nothing.
      source->write("late");
      exchange->wake();
      exchange->reply({});
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(told, 1);
      bool late = false;
      exchange->on_disconnect([&] { late = true; });  // already gone: told at once
      EXPECT_TRUE(late);
    }
  EXPECT_EQ(server.http().stats().disconnects, 6u);
  EXPECT_TRUE(server.http().wait_drained(1s));
}

TEST(Http, NoDisconnectAfterACompleteAnswer) {
  TestServer server;
  std::atomic<int> told{0};
  RawClient client(server.port());
  for (const bool streaming : {false, true}) {
    client.send(get("/wait"));
    const auto exchange = server.take();
    ASSERT_TRUE(exchange);
    exchange->on_disconnect([&] { ++told; });
    if (streaming) {
      const auto source = std::make_shared<TestSource>();
      source->end();
      exchange->stream({}, source);
    } else {
      exchange->reply({});
    }
    EXPECT_TRUE(client.receive().complete);
  }
  client.close();
  EXPECT_TRUE(eventually([&] { return server.http().stats().connections == 0; }));
  EXPECT_EQ(told, 0);
}

TEST(Http, AHalfClosedClientStillGetsAQuickAnswer) {
  HttpServerOptions options;
  options.limits.half_close_time = 60s;  // the machine may be busy
  TestServer server(options);
  RawClient client(server.port());
  client.send(kGet + kGet);
  client.half_close();
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.closed());
}

TEST(Http, ARequestCutShortIsAnError) {
  TestServer server;
  for (const char* request : {"GET /echo HT", "GET /echo HTTP/1.1\r\nHost: a\r\n",
                              "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
                              "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    RawClient client(server.port());
    client.send(request);
    client.half_close();
    EXPECT_EQ(client.receive().status, 400) << request;
    EXPECT_TRUE(client.closed()) << request;
  }
}

TEST(Http, AReaderThatTakesNothingIsDropped) {
  HttpServerOptions options;
  options.limits.write_time = 300ms;
  TestServer server(options);
  RawClient client(server.port());
  client.set_receive_buffer(64 << 10);
  client.send(get("/wait"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  std::atomic<bool> told{false};
  exchange->on_disconnect([&] { told = true; });
  exchange->reply({.body = std::string(64 << 20, 'x')});
  EXPECT_TRUE(eventually([&] { return told.load(); }));
}

// ---- Limits ----

TEST(Http, ASlowHeadIsCutOff) {
  HttpServerOptions options;
  options.limits.head_time = 200ms;
  TestServer server(options);
  RawClient slow(server.port());
  const auto start = std::chrono::steady_clock::now();
  // A byte now and then keeps no connection.
  for (const char c :
       std::string("GET /echo HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")) {
    if (!slow.send({&c, 1})) break;
    std::this_thread::sleep_for(20ms);
    if (std::chrono::steady_clock::now() - start > 600ms) break;
  }
  const RawReply reply = slow.receive();
  EXPECT_EQ(reply.status, 408);
  EXPECT_TRUE(slow.closed());

  RawClient silent(server.port());
  EXPECT_TRUE(silent.closed(5s));
  EXPECT_EQ(silent.received(), "");
}

TEST(Http, ASlowBodyIsCutOff) {
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

TEST(Http, IdleConnectionsAreClosed) {
  HttpServerOptions options;
  options.limits.idle_time = 100ms;
  TestServer server(options);
  RawClient client(server.port());
  client.send(kGet);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.closed(5s));
  EXPECT_EQ(client.received(), "");
}

TEST(Http, SizesAreLimited) {
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

TEST(Http, BodiesTogetherAreLimited) {
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

TEST(Http, TooManyConnectionsAreToldSo) {
  HttpServerOptions options;
  options.limits.connections = 3;
  TestServer server(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(kGet);
    EXPECT_EQ(clients.back()->receive().status, 200);
  }
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

TEST(Http, SurvivesRunningOutOfFileDescriptors) {
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

TEST(Http, AddressesAndPorts) {
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

TEST(Http, SpeaksIpv6) {
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

TEST(Http, DrainsRunningStreams) {
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
  EXPECT_TRUE(server.http().wait_drained(5s));
  EXPECT_TRUE(running.closed());
}

TEST(Http, StopCutsEverything) {
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

TEST(Http, StopsWhileClientsComeAndGo) {
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
