// Who may ask: API keys, browsers of other origins, TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "core/error.h"
#include "server/api_keys.h"
#include "server/test_server.h"

namespace ingot::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/ingot-http-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }

 private:
  std::string path_;
};

std::string error_of(const HttpServerOptions& options) {
  try {
    HttpServer server(options, [](std::shared_ptr<Exchange>) {});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// ---- API keys ----

TEST(ApiKeys, OpenOnlyWithAKey) {
  const Folder folder;
  HttpServerOptions options;
  options.api_keys = {"sk-first", "sk-second"};
  options.api_key_file = folder.write("keys", "# team\n\nsk-third\r\n  sk-fourth  \n");
  options.needs_key = [](std::string_view path) { return path != "/open"; };
  TestServer server(options);
  RawClient client(server.port());
  const auto status = [&](const std::string& authorization) {
    client.send(get("/echo", authorization.empty() ? "" : "Authorization: " + authorization + "\r\n"));
    return client.receive().status;
  };
  for (const char* key : {"sk-first", "sk-second", "sk-third", "sk-fourth"}) {
    EXPECT_EQ(status("Bearer " + std::string(key)), 200);
    EXPECT_EQ(status("bEARER  " + std::string(key)), 200);
    EXPECT_EQ(status("Bearer " + std::string(key) + "x"), 401);
    EXPECT_EQ(status("Bearer " + std::string(key).substr(1)), 401);
    EXPECT_EQ(status(key), 401);
    EXPECT_EQ(status("Basic " + std::string(key)), 401);
  }
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer #", "Bearer # team", "Bearer sk-first sk-second", "Bearersk-first"})
    EXPECT_EQ(status(wrong), 401) << wrong;

  client.send(get("/echo"));
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.header("www-authenticate"), "Bearer");
  EXPECT_THAT(reply.body, HasSubstr("\"type\":\"authentication_error\""));
  EXPECT_THAT(reply.body, HasSubstr("\"code\":\"invalid_api_key\""));
  EXPECT_NE(reply.header("x-request-id"), "");

  client.send(get("/open"));
  const auto exchange = server.take();
  ASSERT_TRUE(exchange);
  exchange->reply({});
  EXPECT_EQ(client.receive().status, 200);
}

TEST(ApiKeys, ABodyWithoutAKeyIsNotRead) {
  HttpServerOptions options;
  options.api_keys = {"sk"};
  TestServer server(options);
  RawClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST(ApiKeys, PathsThatNeedOne) {
  for (const char* path : {"/v1", "/v1/models", "/v1/chat/completions", "/tokenize", "/detokenize", "/metrics",
                           "/debug/integrity", "/v1/"})
    EXPECT_TRUE(server::needs_key_by_default(path)) << path;
  for (const char* path : {"/", "/live", "/health", "/ready", "/version", "/v10", "/metricsx", ""})
    EXPECT_FALSE(server::needs_key_by_default(path)) << path;
  // The decoded path is judged, so an escape does not lead around the key.
  HttpServerOptions options;
  options.api_keys = {"sk"};
  TestServer server(options);
  RawClient client(server.port());
  client.send(get("/%76%31/models"));
  EXPECT_EQ(client.receive().status, 401);
}

TEST(ApiKeys, AnthropicsClientsSendThemInAHeaderOfTheirOwn) {
  HttpServerOptions options;
  options.api_keys = {"sk-first", "sk-second"};
  options.limits.body_bytes = 10;
  TestServer server(options);
  const auto reply_to = [&](const std::string& headers, const std::string& body = "{}") {
    RawClient client(server.port());
    client.send("POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-7\r\n" + headers +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.receive();
  };
  const auto served = std::async(std::launch::async, [&] {
    for (int i = 0; i < 2; ++i)
      if (const auto exchange = server.take()) exchange->reply({.body = exchange->request().tenant});
  });
  EXPECT_EQ(reply_to("x-api-key: sk-second\r\n").body, "key 1");
  EXPECT_EQ(reply_to("Authorization: Bearer no\r\nX-Api-Key: sk-first\r\n").body, "key 0");
  for (const char* wrong : {"", "x-api-key:\r\n", "x-api-key: sk\r\n", "x-api-key: Bearer sk-first\r\n"}) {
    const RawReply reply = reply_to(wrong);
    EXPECT_EQ(reply.status, 401) << wrong;
    EXPECT_THAT(reply.body, HasSubstr(R"({"type":"error","error":{"type":"authentication_error","message":")"));
    EXPECT_THAT(reply.body, HasSubstr(R"("request_id":"r-7")"));
    EXPECT_EQ(reply.header("request-id"), "r-7");
  }
  const RawReply large = reply_to("x-api-key: sk-first\r\n", std::string(11, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr(R"("type":"request_too_large")"));
}

TEST(ApiKeys, BadKeysAreErrors) {
  const Folder folder;
  HttpServerOptions options;
  options.api_keys = {"two words"};
  EXPECT_THAT(error_of(options), HasSubstr("--api-key: a key must be"));
  options.api_keys = {""};
  EXPECT_THAT(error_of(options), HasSubstr("--api-key: a key must be"));
  options.api_keys = {};
  options.api_key_file = folder.file("none");
  EXPECT_THAT(error_of(options), HasSubstr("none: cannot be read"));
  options.api_key_file = folder.write("empty", "# nothing\n");
  EXPECT_THAT(error_of(options), HasSubstr("has no key in it"));
  options.api_key_file = folder.write("bad", "good\n\nbad key\n");
  EXPECT_THAT(error_of(options), HasSubstr("bad:3: a key must be"));
}

// ---- CORS ----

int status_of(TestServer& server, const std::string& method, const std::string& headers) {
  RawClient client(server.port());
  client.send(method + " /echo HTTP/1.1\r\n" + headers + (method == "POST" ? "Content-Length: 0\r\n" : "") + "\r\n");
  return client.receive().status;
}

TEST(BrowserWall, OnlyOwnNamesAreServedWithoutKeys) {
  HttpServerOptions options;
  options.allowed_hosts = {"Chat.Example.com"};
  TestServer server(options);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  for (const std::string& host :
       {std::string("127.0.0.1"), std::string("127.0.0.1:8000"), std::string("10.1.2.3:80"), std::string("[::1]:8000"),
        std::string("[fe80::1]"), std::string("localhost"), std::string("LocalHost:8000"), std::string("a.localhost"),
        std::string("chat.example.com:443"), std::string("localhost."), std::string(name)})
    EXPECT_EQ(status_of(server, "GET", "Host: " + host + "\r\n"), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
                           "notchat.example.com", "127.0.0.1x", "localhost1", "xlocalhost"})
    for (const char* method : {"GET", "POST"})
      EXPECT_EQ(status_of(server, method, "Host: " + std::string(host) + "\r\n"), 403) << host;

  HttpServerOptions keyed;
  keyed.api_keys = {"secret"};
  keyed.allowed_hosts = {"chat.example.com"};
  TestServer with_keys(keyed);
  EXPECT_EQ(status_of(with_keys, "GET", "Host: any.example\r\n"), 200) << "a page that was rebound has no key";
  options.allowed_hosts = {"https://x"};
  EXPECT_THROW(TestServer{options}, Error);
}

TEST(BrowserWall, PagesOfOtherOriginsCannotPost) {
  HttpServerOptions options;
  options.cors_origins = {"https://chat.example"};
  TestServer server(options);
  const std::string host = "Host: box:8000\r\n";
  for (const char* headers :
       {"", "Origin: http://box:8000\r\n", "Origin: https://chat.example\r\n",
        "Origin: https://chat.example\r\nSec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: none\r\n",
        "Sec-Fetch-Site: same-origin\r\nOrigin: https://behind-a-proxy.example\r\n"})
    EXPECT_EQ(status_of(server, "POST", host + headers), 200) << headers;
  for (const char* headers :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Origin: http://box:9000\r\n", "Origin: http://box\r\n",
        "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://box:8000\r\nSec-Fetch-Site: cross-site\r\n", "Origin: box:8000\r\n"}) {
    EXPECT_EQ(status_of(server, "POST", host + headers), 403) << headers;
    EXPECT_EQ(status_of(server, "DELETE", host + headers), 403) << headers;
    EXPECT_EQ(status_of(server, "GET", host + headers), 200) << "a link to here, and what the page cannot read";
  }
  EXPECT_EQ(status_of(server, "POST", "Host: box\r\nOrigin: http://box:80\r\n"), 200) << "the usual port is none";
}

TEST(Cors, NothingIsSentWithoutIt) {
  TestServer server;
  RawClient client(server.port());
  client.send(get("/echo", "Origin: https://a.example\r\n"));
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.header("access-control-allow-origin"), "");
  EXPECT_EQ(reply.header("vary"), "");
}

TEST(Cors, ListedOriginsAreAllowed) {
  HttpServerOptions options;
  options.cors_origins = {"https://a.example", "http://localhost:3000"};
  options.api_keys = {"sk"};
  TestServer server(options);
  RawClient client(server.port());
  const auto preflight = [&](const std::string& origin) {
    client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\nOrigin: " + origin +
                "\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, "
                "x-stainless-os\r\n\r\n");
    return client.receive();
  };
  for (const char* origin : {"https://a.example", "http://localhost:3000"}) {
    const RawReply reply = preflight(origin);
    EXPECT_EQ(reply.status, 204);
    EXPECT_EQ(reply.header("access-control-allow-origin"), origin);
    EXPECT_EQ(reply.header("access-control-allow-headers"), "authorization, x-stainless-os");
    EXPECT_THAT(reply.header("access-control-allow-methods"), HasSubstr("POST"));
    EXPECT_EQ(reply.header("vary"), "Origin");
    EXPECT_EQ(reply.header("content-length"), "");
    // Refusals have the headers too, or the page could not read them.
    client.send(get("/v1/models", "Origin: " + std::string(origin) + "\r\n"));
    const RawReply refused = client.receive();
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.header("access-control-allow-origin"), origin);
    EXPECT_THAT(refused.header("access-control-expose-headers"), HasSubstr("X-Request-Id"));
  }
  for (const char* origin :
       {"https://b.example", "https://a.example.evil", "null", "https://A.example", "http://localhost"}) {
    const RawReply reply = preflight(origin);
    EXPECT_EQ(reply.header("access-control-allow-origin"), "") << origin;
    EXPECT_EQ(reply.header("vary"), "Origin");
  }
}

TEST(Cors, AStarAllowsAll) {
  HttpServerOptions options;
  options.cors_origins = {"*"};
  TestServer server(options);
  RawClient client(server.port());
  client.send(get("/echo", "Origin: https://any.example\r\n"));
  const RawReply reply = client.receive();
  EXPECT_EQ(reply.header("access-control-allow-origin"), "*");
  EXPECT_EQ(reply.header("vary"), "");
  // A plain OPTIONS is the API's business.
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive().body, "OPTIONS /echo? ");
}

TEST(Cors, BadOriginsAreErrors) {
  for (const char* origin :
       {"", "a.example", "https://", "https://a/path", "https://a b", "https://a/", "https://u@a"}) {
    HttpServerOptions options;
    options.cors_origins = {origin};
    EXPECT_THAT(error_of(options), HasSubstr("must be `*` or an origin")) << origin;
  }
}

// ---- TLS ----

// A fresh key and a certificate for 127.0.0.1 signed by it.
void make_certificate(const std::string& certificate_file, const std::string& key_file) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  FILE* file = std::fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, certificate);
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

class TlsClient : public RawClient {
 public:
  TlsClient(uint16_t port, int newest_version) : RawClient(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_, newest_version);
    SSL_CTX_set_security_level(context_, 0);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd());
    secure_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() override {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  bool secure() const { return secure_; }
  std::string version() const { return SSL_get_version(ssl_); }
  bool send(std::string_view bytes) override {
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
  }
  bool said_goodbye() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }

 protected:
  long read_some(char* into, size_t size, std::chrono::milliseconds most) override {
    if (SSL_pending(ssl_) == 0 && !wait_readable(most)) return -1;
    const int count = SSL_read(ssl_, into, static_cast<int>(size));
    return count < 0 ? 0 : count;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  bool secure_;
};

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    make_certificate(folder_.file("cert.pem"), folder_.file("key.pem"));
    make_certificate(folder_.file("other-cert.pem"), folder_.file("other-key.pem"));
    options_.tls_certificate = folder_.file("cert.pem");
    options_.tls_key = folder_.file("key.pem");
  }
  const Folder folder_;
  HttpServerOptions options_;
};

TEST_F(TlsTest, ServesRequestsStreamsAndDisconnects) {
  TestServer server(options_);
  EXPECT_THAT(server.http().url(), ::testing::StartsWith("https://127.0.0.1:"));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.port(), newest);
    ASSERT_TRUE(client.secure());
    EXPECT_EQ(client.version(), newest == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    const std::string body(300'000, 'x');
    client.send(post("/echo", body));
    EXPECT_EQ(client.receive().body, "POST /echo? " + body);

    client.send(get("/stream"));
    auto exchange = server.take();
    ASSERT_TRUE(exchange);
    const auto source = std::make_shared<TestSource>();
    exchange->stream({}, source);
    for (int i = 0; i < 20; ++i) {
      source->write("piece " + std::to_string(i) + "\n");
      exchange->wake();
      EXPECT_TRUE(client.receive_until("piece " + std::to_string(i) + "\n"));
    }
    source->write(std::string(2 << 20, 'z'));
    source->end();
    exchange->wake();
    EXPECT_EQ(client.receive().body.substr(0, 8), "piece 0\n");

    client.send(get("/wait"));
    exchange = server.take();
    ASSERT_TRUE(exchange);
    std::atomic<int> told{0};
    exchange->on_disconnect([&] { ++told; });
    client.close();
    EXPECT_TRUE(eventually([&] { return told == 1; }));
  }
}

TEST_F(TlsTest, SaysGoodbye) {
  TestServer server(options_);
  TlsClient client(server.port(), TLS1_3_VERSION);
  client.send(get("/echo", "Connection: close\r\n"));
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.said_goodbye());
}

TEST_F(TlsTest, OldVersionsAndPlainTextAreRefused) {
  TestServer server(options_);
  TlsClient old(server.port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.secure());
  RawClient plain(server.port());
  plain.send(kGet);
  EXPECT_EQ(plain.receive().status, 0);
  EXPECT_TRUE(plain.closed());
  TlsClient next(server.port(), TLS1_3_VERSION);
  next.send(kGet);
  EXPECT_EQ(next.receive().status, 200);
}

TEST_F(TlsTest, ASilentClientIsCutOff) {
  options_.limits.head_time = 200ms;
  TestServer server(options_);
  RawClient silent(server.port());
  EXPECT_TRUE(silent.closed(60s));
}

TEST_F(TlsTest, BadFilesAreErrors) {
  HttpServerOptions wrong = options_;
  wrong.tls_key.clear();
  EXPECT_THAT(error_of(wrong), HasSubstr("--tls-cert and --tls-key must be given together"));
  wrong = options_;
  wrong.tls_certificate = folder_.file("none.pem");
  EXPECT_THAT(error_of(wrong), HasSubstr("none.pem: cannot be read"));
  wrong.tls_certificate = folder_.write("junk.pem", "junk");
  EXPECT_THAT(error_of(wrong), HasSubstr("junk.pem: is not a PEM certificate"));
  wrong = options_;
  wrong.tls_key = folder_.file("junk.pem");
  EXPECT_THAT(error_of(wrong), HasSubstr("junk.pem: is not the certificate's PEM key"));
  wrong.tls_key = folder_.file("other-key.pem");
  EXPECT_THAT(error_of(wrong), HasSubstr("other-key.pem: is not the certificate's PEM key"));
}

}  // namespace
}  // namespace ingot::testing
