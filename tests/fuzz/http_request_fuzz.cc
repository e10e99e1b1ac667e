// Requests from the network: the parser must read them alike however the bytes are cut, keep its limits, and, where
// Boost Beast's parser accepts a request too, agree with it about where it ends and what it says. Two programs that
// disagree about that are how requests are smuggled past a proxy.
#include <boost/beast/http.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/request_parser.h"

namespace {

using ingot::server::ParserLimits;
using ingot::server::RequestParser;
using Stage = RequestParser::Stage;

void require(bool holds) {
  if (!holds) std::abort();
}

// Returns how many bytes were used.
size_t feed(RequestParser& parser, std::string_view bytes, size_t portion) {
  size_t at = 0;
  while (at < bytes.size() && parser.stage() != Stage::complete && parser.stage() != Stage::failed)
    at += parser.feed(bytes.substr(at, portion));
  return at;
}

void compare_with_beast(const ingot::server::HttpRequest& request, std::string_view bytes, size_t used) {
  namespace http = boost::beast::http;
  http::request_parser<http::string_body> beast;
  beast.eager(true);
  beast.header_limit(1 << 20);
  beast.body_limit(1 << 20);
  size_t at = 0;
  boost::system::error_code error;
  while (!beast.is_done()) {
    const size_t count = beast.put(boost::asio::buffer(bytes.data() + at, bytes.size() - at), error);
    at += count;
    if (error == http::error::need_more) require(at < used || !beast.is_header_done());
    if (error || count == 0) return;  // Beast is stricter about extensions of chunks, for instance
  }
  require(at == used);
  require(std::string_view(beast.get().method_string()) == request.method);
  require(beast.get().body() == request.body);
  const std::string_view target(beast.get().target().data(), beast.get().target().size());
  require(target.ends_with(request.query));
  require(target == "*" || target.starts_with('/'));
  require(static_cast<size_t>(std::distance(beast.get().begin(), beast.get().end())) >= request.headers.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ParserLimits limits{.head_bytes = 4096, .headers = 32, .body_bytes = 2000};
  RequestParser whole(limits);
  RequestParser pieces(limits);
  const size_t used = feed(whole, bytes, bytes.size());
  require(feed(pieces, bytes, 1) == used);
  require(whole.stage() == pieces.stage());
  require(whole.request().body.size() <= limits.body_bytes && whole.request().headers.size() <= limits.headers);
  if (whole.stage() == Stage::failed) {
    require(whole.refusal().status >= 400 && whole.refusal().status < 500);
    require(whole.refusal().message == pieces.refusal().message);
  } else {
    require(whole.request().body == pieces.request().body && whole.request().path == pieces.request().path);
    require(whole.request().headers == pieces.request().headers);
  }
  if (whole.stage() == Stage::complete) compare_with_beast(whole.request(), bytes, used);
  return 0;
}
