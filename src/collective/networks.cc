#include "collective/networks.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstdlib>
#include <sstream>

namespace ingot {
namespace {

bool is_in(in_addr address, const std::string& network) {
  const size_t slash = network.find('/');
  in_addr base{};
  if (inet_pton(AF_INET, network.substr(0, slash).c_str(), &base) != 1) return false;
  const int bits = slash == std::string::npos ? 32 : std::atoi(network.c_str() + slash + 1);
  if (bits < 0 || bits > 32) return false;
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  return ((ntohl(address.s_addr) ^ ntohl(base.s_addr)) & mask) == 0;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream from(text);
  for (std::string part; std::getline(from, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<std::string> own_addresses(const std::string& networks) {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::vector<std::string> wanted = split(networks, ',');
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    bool take = wanted.empty() && (each->ifa_flags & IFF_LOOPBACK) == 0;
    for (const std::string& network : wanted) take |= network == each->ifa_name || is_in(address, network);
    char text[INET_ADDRSTRLEN];
    if (take && inet_ntop(AF_INET, &address, text, sizeof text) != nullptr) found.emplace_back(text);
  }
  freeifaddrs(list);
  return found;
}

}  // namespace ingot
