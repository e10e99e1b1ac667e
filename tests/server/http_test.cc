// The transport over real sockets: connections, streams, disconnects, limits, draining.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
  // Far more than the socket buffers hold: the server must stop taking it. Many small ones: when it does, some of them
  // have been sent whole.
  std::string more;
  while (more.size() < (64 << 20)) more += post("/echo", std::string(1 << 14, 'x'));
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
  const std::string much(32 << 20, 'x');  // more than the socket's buffers hold: after it nothing is pulled
  source->write(much);
  exchange->stream({}, source);
  ASSERT_TRUE(eventually([&] { return source->waiting() == 0; }));
  for (int i = 0; i < 1000; ++i) {
    source->write("y");
    exchange->wake();
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(source->pulls(), 1u);
  // Another client is not held up.
  RawClient other(server.port());
  other.send(kGet);
  EXPECT_EQ(other.receive().status, 200);
  // And once it reads again, nothing is missing.
  source->end();
  exchange->wake();
  const RawReply reply = client.receive();
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.body.size(), much.size() + 1000);
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
  EXPECT_LE(thread_count(), threads) << "those of the tests before may still end";
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
  EXPECT_TRUE(server.http().wait_drained(60s));
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
  EXPECT_TRUE(server.http().wait_drained(60s));
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

}  // namespace
}  // namespace ingot::testing
