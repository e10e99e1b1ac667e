#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ingot::testing {

// A reply as it came over the wire, its body with the chunks taken apart.
struct RawReply {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string head;  // as it came
  bool complete = false;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// A TCP client that sends exactly the bytes it is told to. A failure to read is an empty answer, for the test to judge.
class RawClient {
 public:
  explicit RawClient(uint16_t port, bool ipv6 = false);
  virtual ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False when the server does not take it all within ten seconds.
  virtual bool send(std::string_view bytes);
  // The next reply, or what there is of it when the connection ends or the time is over. head_only: to a HEAD request.
  RawReply receive(bool head_only = false, std::chrono::milliseconds most = std::chrono::seconds(60));
  // Reads until `text` was seen; false when it did not come.
  bool receive_until(std::string_view text, std::chrono::milliseconds most = std::chrono::seconds(60));
  // True when the server ends the connection within the time; whatever it sends before that is kept in received().
  bool closed(std::chrono::milliseconds most = std::chrono::seconds(60));
  const std::string& received() const { return input_; }  // and not taken by receive()
  void half_close();
  void close();
  void reset();  // closes with a TCP reset
  void set_receive_buffer(int bytes);
  int fd() const { return fd_; }

 protected:
  // Bytes read, 0 at the end, -1 when nothing came in time.
  virtual long read_some(char* into, size_t size, std::chrono::milliseconds most);
  bool wait_readable(std::chrono::milliseconds most);

 private:
  bool fill(std::chrono::steady_clock::time_point until);
  void receive_body(RawReply& reply, std::chrono::steady_clock::time_point until);
  void receive_chunks(RawReply& reply, std::chrono::steady_clock::time_point until);

  int fd_ = -1;
  std::string input_;
  bool ended_ = false;
};

}  // namespace ingot::testing
