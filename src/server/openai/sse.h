#pragma once

#include <string>
#include <string_view>

// Server-sent events.
namespace ingot::server::openai {

// `data` is JSON on one line.
inline void append_event(std::string& out, std::string_view data) {
  out += "data: ";
  out += data;
  out += "\n\n";
}

// With a name in front, which is also the `type` of the data.
inline void append_event(std::string& out, std::string_view name, std::string_view data) {
  out += "event: ";
  out += name;
  out += '\n';
  append_event(out, data);
}

inline void append_done(std::string& out) { append_event(out, "[DONE]"); }

}  // namespace ingot::server::openai
