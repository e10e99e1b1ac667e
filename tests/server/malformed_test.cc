// Requests nobody should send. Each gets a 4xx with OpenAI's error shape and the end of its connection, and the server
// goes on; none may reach the handler, nor may anything behind it in the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/request_parser.h"
#include "server/test_server.h"

namespace ingot::testing {
namespace {

using namespace std::string_literals;
using server::ParserLimits;
using server::RequestParser;

struct Case {
  std::string bytes;
  int status;
};

const std::string kHost = "Host: a\r\n";
const std::string kPost = "POST /echo HTTP/1.1\r\nHost: a\r\n";
const std::string kChunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";

// `bytes` ends where the fault is certain; a good request follows in the tests, which must not be answered.
std::vector<Case> cases() {
  std::vector<Case> all = {
      // Request lines
      {"\r\n\r\n\r\n", 400},
      {"GET\r\n", 400},
      {"GET /echo\r\n", 400},
      {"GET  /echo HTTP/1.1\r\n", 400},
      {"GET /echo  HTTP/1.1\r\n", 400},
      {" GET /echo HTTP/1.1\r\n", 400},
      {"GET /echo HTTP/1.1 \r\n", 400},
      {"GET /e cho HTTP/1.1\r\n", 400},
      {"GET\t/echo\tHTTP/1.1\r\n", 400},
      {"GET /echo HTTP/1.1\n", 400},
      {"GET /echo HTTP/1.1\r\r\n", 400},
      {"GET /echo\rHTTP/1.1\r\n", 400},
      {"GET /echo HTTP/1.2\r\n", 400},
      {"GET /echo HTTP/2.0\r\n", 400},
      {"GET /echo HTTP/0.9\r\n", 400},
      {"GET /echo HTTP/1.10\r\n", 400},
      {"GET /echo HTTP/01.1\r\n", 400},
      {"GET /echo http/1.1\r\n", 400},
      {"GET /echo HTTP/1,1\r\n", 400},
      {"GET /echo HTTP/99999999999999999999.1\r\n", 400},
      {"GET /echo ICAP/1.1\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
      {"\0\0\0\0"s, 400},
      {"GET /echo\0 HTTP/1.1\r\n"s, 400},
      {"GE\x7fT /echo HTTP/1.1\r\n", 400},
      {"G(T /echo HTTP/1.1\r\n", 400},
      {"G\xc3\x89T /echo HTTP/1.1\r\n", 400},
      {"{\"prompt\": \"x\"}\r\n", 400},
      // Methods
      {"get /echo HTTP/1.1\r\n", 405},
      {"TRACE /echo HTTP/1.1\r\n", 405},
      {"CONNECT a:443 HTTP/1.1\r\n", 405},
      {"BREW /echo HTTP/1.1\r\n", 405},
      {std::string(2000, 'A') + " /echo HTTP/1.1\r\n", 405},
      // Targets
      {"GET echo HTTP/1.1\r\n", 400},
      {"GET ftp://a/echo HTTP/1.1\r\n", 400},
      {"GET http:///echo HTTP/1.1\r\n", 400},
      {"GET //a/echo#x HTTP/1.1\r\n", 400},
      {"GET * HTTP/1.1\r\n", 400},
      {"GET \\echo HTTP/1.1\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n", 400},
      {"GET /% HTTP/1.1\r\n", 400},
      {"GET /%4 HTTP/1.1\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n", 400},
      {"GET /%0d%0aX HTTP/1.1\r\n", 400},
      {"GET /\xc3\xa4 HTTP/1.1\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n", 400},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n", 431},
      // Header lines
      {"GET /echo HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\n\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\rX: y\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost : a\r\n", 400},
      {"GET /echo HTTP/1.1\r\n Host: a\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\n folded\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\n\tfolded\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost\r\n", 400},
      {"GET /echo HTTP/1.1\r\n: a\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX Y: a\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX\0Y: a\r\n"s, 400},
      {"GET /echo HTTP/1.1\r\nX: a\0b\r\n"s, 400},
      {"GET /echo HTTP/1.1\r\nX: a\x01\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX: a\x7f\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX\xc3\xa4: a\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX(: a\r\n", 400},
      {"GET /echo HTTP/1.1\r\nX: " + std::string(20000, 'a'), 431},
      // Host
      {"GET /echo HTTP/1.1\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
      {"GET http://b/echo HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /echo HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      // Lengths
      {kPost + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {kPost + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
      {kPost + "Content-Length: 1\r\ncontent-length: 1\r\n\r\n", 400},
      {kPost + "Content-Length: 1, 1\r\n\r\n", 400},
      {kPost + "Content-Length: -1\r\n\r\n", 400},
      {kPost + "Content-Length: +1\r\n\r\n", 400},
      {kPost + "Content-Length: 0x1\r\n\r\n", 400},
      {kPost + "Content-Length: 1 2\r\n\r\n", 400},
      {kPost + "Content-Length: 1.0\r\n\r\n", 400},
      {kPost + "Content-Length: 1e3\r\n\r\n", 400},
      {kPost + "Content-Length:\r\n\r\n", 400},
      {kPost + "Content-Length: many\r\n\r\n", 400},
      {kPost + "Content-Length: \xd9\xa1\r\n\r\n", 400},
      {kPost + "Content-Length: 99999999999\r\n\r\n", 413},
      {kPost + "Content-Length: 18446744073709551616\r\n\r\n", 413},
      {kPost + "Content-Length: 18446744073709551617\r\n\r\n", 413},
      {kPost + "Content-Length: " + std::string(400, '9') + "\r\n\r\n", 413},
      // Lengths and encodings together
      {kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked, chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked, identity\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: identity\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: xchunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
      {kPost + "Transfer-Encoding:\r\n\r\n", 400},
      {kPost + "Transfer-Encoding : chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\x0b\r\n\r\n", 400},
      {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      // Chunks
      {kChunked + "\r\n", 400},
      {kChunked + "g\r\n", 400},
      {kChunked + "00000000000000005\r\n", 400},
      {kChunked + "-1\r\n", 400},
      {kChunked + "0x5\r\n", 400},
      {kChunked + " 5\r\n", 400},
      {kChunked + "5 \r\n", 400},
      {kChunked + "5\nhello", 400},
      {kChunked + "5\rhello", 400},
      {kChunked + "5\r\nhelloX", 400},
      {kChunked + "5\r\nhello\n", 400},
      {kChunked + "5\r\nhello\rX", 400},
      {kChunked + "5;a=\x01\r\n", 400},
      {kChunked + "5;a=b\n", 400},
      {kChunked + ";a\r\n", 400},
      {kChunked + "0\r\nno colon\r\n", 400},
      {kChunked + "0\r\n: empty\r\n", 400},
      {kChunked + "0\r\nX: a\x01\r\n", 400},
      {kChunked + "0\r\nX: a\n", 400},
      {kChunked + "0\r\n\n", 400},
      {kChunked + "ffffffffffffffff\r\n", 413},
      {kChunked + "10000000000000005\r\n", 413},
      {kChunked + std::string(100, 'f') + "\r\n", 413},
      {kChunked + "5;" + std::string(10000, 'e'), 413},
      {kChunked + "0\r\nX: " + std::string(10000, 't'), 413},
      // Expectations
      {kPost + "Content-Length: 1\r\nExpect: 200-ok\r\n\r\n", 417},
  };
  return all;
}

TEST(Malformed, EachIsRefusedAndTheServerGoesOn) {
  TestServer server;
  ASSERT_GE(cases().size(), 80u);
  uint64_t good = 0;
  for (const Case& wrong : cases()) {
    RawClient client(server.port());
    ASSERT_TRUE(client.connected());
    client.send(wrong.bytes + kGet);
    const RawReply reply = client.receive();
    EXPECT_EQ(reply.status, wrong.status) << wrong.bytes.substr(0, 200);
    EXPECT_EQ(reply.header("connection"), "close") << wrong.bytes.substr(0, 200);
    EXPECT_EQ(reply.header("content-type"), "application/json");
    EXPECT_NE(reply.header("x-request-id"), "");
    const nlohmann::json body = nlohmann::json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << reply.body;
    EXPECT_TRUE(body["error"]["message"].is_string());
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    EXPECT_TRUE(body["error"].contains("param") && body["error"]["code"].is_string());
    // Neither the bad request nor what was behind it was served.
    client.half_close();
    EXPECT_TRUE(client.closed()) << wrong.bytes.substr(0, 200);
    EXPECT_EQ(client.received(), "") << wrong.bytes.substr(0, 200);
    EXPECT_EQ(server.http().stats().requests, good) << wrong.bytes.substr(0, 200);

    RawClient next(server.port());
    next.send(kGet);
    EXPECT_EQ(next.receive().status, 200);
    ++good;
  }
  EXPECT_EQ(server.http().stats().refused, cases().size());
}

// The same faults are found wherever the bytes are cut, and at the same byte.
TEST(Malformed, PortionsDoNotMatter) {
  const ParserLimits limits;
  for (const Case& wrong : cases()) {
    if (wrong.status == 417) continue;  // not the parser's business
    RequestParser one(limits);
    RequestParser many(limits);
    const auto used = [&](RequestParser& parser, size_t portion) {
      size_t at = 0;
      while (at < wrong.bytes.size() && parser.stage() != RequestParser::Stage::failed)
        at += parser.feed(std::string_view(wrong.bytes).substr(at, portion));
      return at;
    };
    EXPECT_EQ(used(one, wrong.bytes.size()), used(many, 1));
    EXPECT_EQ(one.stage(), RequestParser::Stage::failed) << wrong.bytes.substr(0, 200);
    EXPECT_EQ(many.stage(), RequestParser::Stage::failed) << wrong.bytes.substr(0, 200);
    EXPECT_EQ(one.refusal().status, wrong.status);
    EXPECT_EQ(one.refusal().message, many.refusal().message);
  }
}

TEST(Malformed, UnusualButRightIsTaken) {
  TestServer server;
  const std::vector<std::string> right = {
      "\r\n" + kGet,
      "GET /echo HTTP/1.1\r\nhost:a\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHOST: \t a \t \r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost:\r\n\r\n",
      "GET /%65cho HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET http://A/echo HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET https://a:8000/echo?x HTTP/1.1\r\nHost: a:8000\r\n\r\n",
      "GET /echo?x=%zz&y=/?:@ HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nX-Umlaut: \xc3\xa4\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nX-Empty:\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
      kPost + "Content-Length: 0002\r\n\r\nab",
      kPost + "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
      kChunked + "00A\r\n0123456789\r\n000\r\n\r\n",
  };
  for (const std::string& request : right) {
    RawClient client(server.port());
    client.send(request);
    EXPECT_EQ(client.receive().status, 200) << request;
    client.send(kGet);
    EXPECT_EQ(client.receive().status, 200) << request;
  }
}

TEST(Malformed, BytesOfTheBodyAreNotARequest) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/echo", kGet) + kGet);
  EXPECT_EQ(client.receive().body, "POST /echo? " + kGet);
  EXPECT_EQ(client.receive().body, "GET /echo? ");
}

}  // namespace
}  // namespace ingot::testing
