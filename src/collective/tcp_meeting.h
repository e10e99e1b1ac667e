#pragma once

#include <array>
#include <string>
#include <vector>

#include "collective/tcp_socket.h"

namespace ingot {

// What tells the ranks of a group from strangers: whoever connects shows its first half, whoever is connected to its
// second.
using TcpKey = std::array<std::byte, 32>;

// Between two ranks: what their devices say to one another, and all else.
struct TcpLinks {
  TcpSocket steps, words;
};

// Connects this rank with each of the others, who listen at `addresses` (of a rank one or several, separated by spaces)
// as this one does at `listener`; its own links stay empty. Strangers are turned away and do not hold up anybody.
// Throws Error(io) that names who did not come.
std::vector<TcpLinks> meet(const TcpSocket& listener, int rank, const std::vector<std::string>& addresses,
                           const TcpKey& key, TcpSocket::Clock::time_point until);

}  // namespace ingot
