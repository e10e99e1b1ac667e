#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace ingot::server {

// How the end of a reply's body is told.
enum class BodyEnd { length, chunked, close };

struct ReplyHead {
  std::string_view request_id;
  BodyEnd end = BodyEnd::length;
  uint64_t length = 0;  // with BodyEnd::length
  bool http10 = false;
  bool keep_alive = true;
};

// Status line and headers, the blank line after them included. Headers of `reply` that would break out of their line
// are left out.
std::string write_head(const HttpReply& reply, const ReplyHead& head);

// A piece of a chunked body in its frame; the last one carries the end mark too.
void append_chunk(std::string& out, std::string_view piece, bool last);

}  // namespace ingot::server
