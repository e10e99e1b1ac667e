#include "server/browser_wall.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <climits>

#include "core/error.h"
#include "core/printable.h"
#include "server/ascii.h"

namespace ingot::server {
namespace {

// "[::1]:8000" and "Name:80" without their port.
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  boost::asio::ip::make_address(std::string(host), error);
  return !error;
}

std::vector<std::string> machine_names() {
  char text[HOST_NAME_MAX + 1] = {};
  if (gethostname(text, sizeof text - 1) != 0 || text[0] == '\0') return {};
  const std::string name = ascii_lower(text);
  const std::string first = name.substr(0, name.find('.'));
  return {name, first, first + ".local"};
}

// Whether a page of this origin is one of ours: it was loaded from the name that it now calls.
bool is_own(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view port = origin.starts_with("https") ? ":443" : ":80";
  std::string_view name = origin.substr(scheme + 3);
  if (name.ends_with(port)) name.remove_suffix(port.size());
  if (host.ends_with(port)) host.remove_suffix(port.size());
  return ascii_lower(name) == ascii_lower(host);
}

}  // namespace

BrowserWall::BrowserWall(bool check_host, const std::string& own, const std::vector<std::string>& allowed)
    : any_host_(!check_host), hosts_(machine_names()) {
  hosts_.push_back(ascii_lower(own));
  for (const std::string& name : allowed) {
    if (name == "*") {
      any_host_ = true;
    } else if (name.empty() || !is_visible(name) || name.find_first_of("/:@") != std::string::npos) {
      throw_error(ErrorKind::bad_call,
                  "--allowed-host {}: must be a name such as chat.example.com, without a port, or *", printable(name));
    } else {
      hosts_.push_back(ascii_lower(name));
    }
  }
}

bool BrowserWall::serves(std::string_view host) const {
  std::string name = ascii_lower(without_port(host));
  if (is_address(name)) return true;
  if (name.ends_with('.')) name.pop_back();
  return name.empty() || name == "localhost" || name.ends_with(".localhost") ||
         std::find(hosts_.begin(), hosts_.end(), name) != hosts_.end();
}

std::optional<BrowserWall::Refusal> BrowserWall::judge(const HttpRequest& request, const Cors& cors) const {
  const std::string_view host = request.header("host");
  if (!any_host_ && !serves(host))
    return Refusal{"host_not_allowed",
                   fmt::format("this server is not called {}: start it with --allowed-host {} if it is",
                               printable(host), printable(without_port(host)))};
  if (request.method != "POST" && request.method != "DELETE") return std::nullopt;
  const std::string_view origin = request.header("origin"), site = request.header("sec-fetch-site");
  if (!origin.empty() && cors.allows(origin)) return std::nullopt;
  // Browsers that send Sec-Fetch-Site know best, also behind a proxy that changes Host.
  const bool foreign =
      site.empty() ? !origin.empty() && !is_own(origin, host) : site != "same-origin" && site != "none";
  if (!foreign) return std::nullopt;
  return Refusal{
      "foreign_origin",
      fmt::format("pages of {} may not use this server: start it with --cors-origin {} if they may",
                  origin.empty() ? "other origins" : printable(origin), origin.empty() ? "ORIGIN" : printable(origin))};
}

}  // namespace ingot::server
