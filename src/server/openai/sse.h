#pragma once

#include <string>
#include <string_view>

// Server-sent events, as far as the completions endpoints use them.
namespace ingot::server::openai {

// `data` is JSON on one line.
inline void append_event(std::string& out, std::string_view data) {
  out += "data: ";
  out += data;
  out += "\n\n";
}

inline void append_done(std::string& out) { append_event(out, "[DONE]"); }

}  // namespace ingot::server::openai
