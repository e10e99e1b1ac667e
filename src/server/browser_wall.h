#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/cors.h"
#include "server/http.h"

namespace ingot::server {

// What a web page of somewhere else can make a browser send here, and how it is told from what is meant:
// - a page whose name was pointed at this address (DNS rebinding) sends that name as Host;
// - a page of another origin sends its Origin, or says so in Sec-Fetch-Site, with everything it may post unasked.
class BrowserWall {
 public:
  // `check_host`: only loopback names, address literals, this machine's names, `own` (what the server was told to
  // listen on) and `allowed` (`*`: any) are served. Throws Error for a name that is none.
  BrowserWall(bool check_host, const std::string& own, const std::vector<std::string>& allowed);

  struct Refusal {
    std::string_view code;
    std::string message;
  };
  // Of a request's head; nothing: it may pass.
  std::optional<Refusal> judge(const HttpRequest& request, const Cors& cors) const;

 private:
  bool serves(std::string_view host) const;

  bool any_host_;
  std::vector<std::string> hosts_;  // in lower case
};

}  // namespace ingot::server
