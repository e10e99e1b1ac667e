#include "server/openai/errors.h"

#include <algorithm>
#include <cmath>

namespace ingot::server::openai {
namespace {

ErrorKind error_kind(int status) {
  if (status == 503) return ErrorKind::overloaded;
  return status < 500 ? ErrorKind::bad_call : ErrorKind::internal;
}

}  // namespace

ApiError::ApiError(int status, std::string message, std::string param, std::string code)
    : Error(error_kind(status), std::move(message), std::move(param)), status_(status), code_(std::move(code)) {}

std::string ErrorReply::log_text() const {
  if (status >= 500) return message;
  return param.empty() ? code : code + ": " + param;
}

HttpReply ErrorReply::reply(const HttpRequest& request, double retry_after_s) const {
  HttpReply reply = error_reply(text(), error_shape(request), request.id);
  if (status == 503) {
    const double seconds = std::isfinite(retry_after_s) ? std::clamp(std::ceil(retry_after_s), 1.0, 3600.0) : 1.0;
    reply.headers.emplace_back("Retry-After", fmt::format("{:.0f}", seconds));
  }
  return reply;
}

ErrorReply to_error_reply(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error))
    return {api->status(), api->what(), api->param(), api->code()};
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
      return {503, "the server has no memory for this request at the moment: try again later", "", "overloaded"};
    return {500, std::string("internal error: ") + error.what(), "", "internal_error"};
  }
  switch (known->kind()) {
    case ErrorKind::bad_call: return {400, known->what(), known->param(), "invalid_value"};
    case ErrorKind::cancelled: return {kClientGone, known->what(), "", "cancelled"};
    case ErrorKind::declined: return {400, known->what(), "", "unsupported_value"};
    case ErrorKind::overloaded:
    case ErrorKind::out_of_memory: return {503, known->what(), "", "overloaded"};
    case ErrorKind::device: return {500, known->what(), "", "device_error"};
    default: return {500, known->what(), "", "internal_error"};
  }
}

}  // namespace ingot::server::openai
