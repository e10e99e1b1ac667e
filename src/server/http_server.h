#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace ingot::server {

// What a client may take of the server, in bytes and in time.
struct HttpLimits {
  size_t head_bytes = 16 << 10;                 // request line and headers; more: 431
  uint64_t body_bytes = 16 << 20;               // more: 413, from Content-Length before any of it is read
  uint64_t buffered_bytes = 256 << 20;          // bodies being received or handled, long replies being sent; more: 503
  size_t connections = 1024;                    // more: the longest idle one is closed, or 503. Both are shared fairly
  size_t read_ahead_bytes = 64 << 10;           // of further requests, while one is being answered
  std::chrono::milliseconds head_time{10'000};  // from the first byte (or the accept) to the end of the head; more: 408
  std::chrono::milliseconds body_time{60'000};  // for the body, and on top of it what body_rate grants; more: 408
  uint64_t body_rate = 64 << 10;                // bytes a second
  std::chrono::milliseconds idle_time{75'000};  // of a kept-alive connection between two requests
  std::chrono::milliseconds write_time{30'000};  // a reader that takes nothing for this long is gone, ...
  uint64_t write_rate = 16 << 10;  // ... or that is later than this with what was to be read; bytes a second
  // A client that ends its side of the connection is gone: most did close both. Those that wait for an answer
  // (`printf ... | nc -N`) have this long to get it.
  std::chrono::milliseconds half_close_time{500};
  std::chrono::milliseconds linger_time{2'000};  // for the client to read the last reply before the close
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address of this machine or a name for one; 0.0.0.0 and ::: all of them
  uint16_t port = 0;               // 0: any free one
  int io_threads = 2;
  int worker_threads = 4;  // run the handler, for one client; GETs have a thread of their own
  HttpLimits limits;
  std::string tls_certificate;  // PEM files; both empty: plain HTTP
  std::string tls_key;
  std::vector<std::string> cors_origins;   // see cors.h
  std::vector<std::string> allowed_hosts;  // see browser_wall.h; looked at where there are no keys
  std::vector<std::string> api_keys;       // no key and no file: everything is open
  std::string api_key_file;
  std::function<bool(std::string_view path)> needs_key;  // empty: needs_key_by_default() of api_keys.h
  // Told of each request that the transport answers itself (malformed, too large, no key, ...); `request` has what is
  // known of it. Called from any thread, like log.
  std::function<void(const HttpRequest& request, int status, std::string_view error)> refused;
  std::function<void(std::string_view line)> log;  // troubles of the transport, one line each
};

struct HttpServerStats {
  size_t connections = 0;    // open now
  size_t exchanges = 0;      // requests being answered now
  uint64_t accepted = 0;     // connections since the start
  uint64_t requests = 0;     // handed to the handler
  uint64_t refused = 0;      // answered by the transport itself: malformed, too large, no key, ...
  uint64_t disconnects = 0;  // clients that left before their answer was complete
};

// An HTTP/1.1 server. A request reaches the handler whole; HEAD reaches it as GET, and the reply goes without its body.
// What the handler throws, and an exchange it drops without an answer, become a 500. Idle connections and streams hold
// no thread. Requests of one connection are answered in the order they came, one at a time.
class HttpServer {
 public:
  // Reads keys and certificates. Throws Error.
  HttpServer(HttpServerOptions options, Handler handler);
  ~HttpServer();  // stops

  // Binds and begins to accept. Throws Error: the address is not ours, the port is taken. Ignores SIGPIPE from then on.
  void start();
  uint16_t port() const;    // the real one, after start()
  std::string url() const;  // http://127.0.0.1:8000

  // From now on every reply ends its connection, and idle connections are closed. New requests still reach the handler,
  // which refuses them in its own words. Returns at once.
  void begin_drain();
  // Waits until no exchange is under way; false when the time was over before that.
  bool wait_drained(std::chrono::milliseconds most);
  // Closes everything (exchanges under way see a disconnect) and waits for running handlers. May be called twice.
  void stop();

  HttpServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot::server
