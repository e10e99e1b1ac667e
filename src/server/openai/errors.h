#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "server/http.h"
#include "server/http_error.h"

// What went wrong with a request, for its client: server/http_error.h has the shapes.
namespace ingot::server::openai {

// An error that knows its place in the request.
class ApiError : public Error {
 public:
  ApiError(int status, std::string message, std::string param, std::string code);

  int status() const { return status_; }
  const std::string& code() const { return code_; }  // empty: none, written as null; likewise param()

 private:
  int status_;
  std::string code_;
};

// A 400 that names a parameter: fail("top_p", "invalid_value", "must be above 0, got {}", value). The message starts
// with the parameter's name.
template <typename... Args>
[[noreturn]] void fail(const std::string& param, std::string code, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, param + " " + fmt::format(format, std::forward<Args>(args)...), param, std::move(code));
}

inline constexpr int kClientGone = 499;  // the client left before the answer was complete; for the log

// What an exception means to a client.
struct ErrorReply {
  int status = 500;
  std::string message;
  std::string param;
  std::string code;

  ErrorText text() const { return {.status = status, .message = message, .param = param, .code = code}; }
  std::string json() const { return error_json(text()); }
  // For the log: of a client's error only its code and the parameter, since the message may repeat what was sent.
  std::string log_text() const;
  // In the shape that the client of `request` reads. `retry_after_s` is sent with a 503; rounded up, at least a second.
  HttpReply reply(const HttpRequest& request, double retry_after_s = 1) const;
};
ErrorReply to_error_reply(const std::exception& error);

}  // namespace ingot::server::openai
