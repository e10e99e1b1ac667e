#pragma once

#include <string_view>

// The chat page: one HTML document with its style and script inside, made from the files of this folder by embed.cmake.
namespace ingot::server {

// The document, UTF-8. It asks for nothing but the API of the server it came from.
std::string_view chat_page();

// The Content-Security-Policy header to send with it: only the script and the style with these hashes run.
std::string_view chat_page_csp();

}  // namespace ingot::server
