#pragma once

#include <string_view>
#include <vector>

// The chat page: one HTML document with its style and script inside, made from the files of this folder by embed.cmake;
// beside it KaTeX, which the page fetches when the first formula is to be shown.
namespace ingot::server {

struct WebFile {
  std::string_view path;  // "/": the page itself
  std::string_view content_type;
  std::string_view text;   // UTF-8
  bool versioned = false;  // asked for under an address that changes with its text, so that it may be kept for ever
};

// They ask for nothing but each other and the API of the server they came from.
std::vector<WebFile> chat_page();

// The Content-Security-Policy header to send with the page: only scripts and styles with these hashes run.
std::string_view chat_page_csp();

}  // namespace ingot::server
