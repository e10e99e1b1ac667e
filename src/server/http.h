#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The seam between the transport (connections, TLS, limits) and what is served over it.
namespace ingot::server {

// A request that arrived whole and within the limits.
struct HttpRequest {
  std::string method;                                        // "GET", "POST", ...
  std::string path;                                          // decoded, without the query
  std::string query;                                         // after '?', as sent
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string id;      // X-Request-Id when it was sent and is harmless, else a new one; goes back in the reply
  std::string peer;    // address:port
  std::string client;  // whose request it is: the holder of its key, else its address. Shares and turns go by it
  std::string tenant;  // the same for the holder of a key, else empty: whom walls stand between

  std::string_view header(std::string_view lower_case_name) const;  // empty when absent
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// A body that comes bit by bit. The transport pulls only when the piece before was written, so a slow reader pulls
// seldom and the producer merges what is ready.
class BodySource {
 public:
  virtual ~BodySource() = default;
  // Appends what is ready, which may be nothing; true: that was the end. Calls never overlap.
  virtual bool pull(std::string& out) = 0;
};

// One request and the way to answer it. Exactly one of reply() and stream() is called, once. All methods may be called
// from any thread; calls after the client went away do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void reply(HttpReply reply) = 0;
  // Sends the head at once (`head.body` is not used), then chunks pulled from `body`.
  virtual void stream(HttpReply head, std::shared_ptr<BodySource> body) = 0;
  // The body source has something new.
  virtual void wake() = 0;
  // Called once, from any thread, if the client goes away (or is too slow) before the answer is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

// Called on a worker thread, so it may take its time (tokenizing a long prompt) without holding up other connections.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace ingot::server
