#include "server/reply_head.h"

#include <fmt/format.h>

#include <ctime>

#include "server/ascii.h"

namespace ingot::server {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return status < 400 ? "OK" : "Error";
  }
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

}  // namespace

std::string write_head(const HttpReply& reply, const ReplyHead& head) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
  const auto add = [&out](std::string_view name, std::string_view value) {
    if (is_token(name) && is_header_value(value)) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  };
  add("Date", http_date());
  const bool has_body = reply.status != 204 && reply.status != 304;
  if (has_body && !reply.content_type.empty()) add("Content-Type", reply.content_type);
  if (has_body && head.end == BodyEnd::length) add("Content-Length", std::to_string(head.length));
  if (has_body && head.end == BodyEnd::chunked) add("Transfer-Encoding", "chunked");
  if (!head.keep_alive)
    add("Connection", "close");
  else if (head.http10)
    add("Connection", "keep-alive");
  add("X-Request-Id", head.request_id);
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : reply.headers) add(name, value);
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view piece, bool last) {
  if (!piece.empty()) fmt::format_to(std::back_inserter(out), "{:x}\r\n{}\r\n", piece.size(), piece);
  if (last) out += "0\r\n\r\n";
}

}  // namespace ingot::server
