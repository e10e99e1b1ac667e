#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace ingot::hub {

struct FetchReply {
  int status = 0;                              // 0: no answer came; `failure` says why
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // unless the request had a sink
  std::string url;                             // the address that gave this answer
  bool redirected = false;                     // its origin is another than that of the request
  std::string failure;                         // what broke the transfer, in words; may come with a status
  bool hopeless = false;                       // that will break it again: a certificate, a malformed address

  std::string header(const std::string& name) const;
};

struct FetchRequest {
  std::string url;
  bool head = false;
  // Send the token. It goes to the origin (scheme, host, port) of `url` alone: redirects elsewhere are followed
  // without.
  std::string token;
  std::string ca_file;       // certificates to trust, PEM; empty: the system's
  uint64_t range_start = 0;  // > 0: ask for the bytes from here on
  // Follow a redirect to another origin; otherwise that answer is returned as it is.
  bool leave_origin = false;
  long stall_s = 30;
  // Called once before the first byte of a success (2xx) and then with its bytes; false ends the transfer.
  std::function<bool(const FetchReply&)> accept;
  std::function<bool(const char* data, size_t bytes)> sink;
};

// One connection after the other, kept open between requests. For one thread; make one client a thread.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Never throws for what the network does; see FetchReply.
  FetchReply send(const FetchRequest& request);

 private:
  struct Impl;
  FetchReply send_once(const FetchRequest& request, const std::string& url, bool with_token);
  std::unique_ptr<Impl> impl_;
};

// "http://host:port/a" from an address and what its Location header says; empty when that is not http(s).
std::string resolve_location(const std::string& base, const std::string& location);
// "scheme://host:port", lower case, the port always there; empty when the address makes no sense.
std::string origin_of(const std::string& url);
// For a path (slashes kept) or one segment of it (slashes too).
std::string url_encode(std::string_view text, bool keep_slashes);

}  // namespace ingot::hub
