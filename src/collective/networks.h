#pragma once

#include <string>
#include <vector>

namespace ingot {

// The addresses of this machine (IPv4) by which others may reach it, those of `networks` only: names of interfaces and
// networks like 10.0.0.0/24, separated by commas; empty: all but the loopback one.
std::vector<std::string> own_addresses(const std::string& networks);

}  // namespace ingot
