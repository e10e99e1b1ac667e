#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/group.h"
#include "collective/tcp_meeting.h"

namespace ingot {

// A rank as the others must know it.
struct TcpRank {
  std::string address;  // TcpListener::address(); several, separated by spaces: they are tried in this order
  std::string machine;  // its name, for people
  std::string memory;   // the same on ranks that share the memory of a machine
};

// What happens to a process whose group is broken: why, in a sentence, and whether rank 0 has said so already. It is
// not meant to return.
using TcpLoss = std::function<void(const std::string& reason, bool is_said)>;

// Ranks that somebody else has started, connected by TCP. Each listens, all of them learn the addresses and a key by a
// way of their own (behind vLLM: its process group), then they join. What they say is not encrypted: the network must
// be theirs.
//
// A rank whose process ends, whose machine is gone, that gives up or has not been heard for about 3 seconds breaks the
// group (rank_watch.h): rank 0 says which rank it was, tells its clients (lost_rank.h) and the others, and all end.
class TcpListener {
 public:
  // `host`: an address of this machine that the others reach. Throws Error(io).
  explicit TcpListener(const std::string& host) : socket_(TcpSocket::listen(host)) {}

  std::string address() const { return socket_.address(); }

  // Throws Error(io) when not all have come after `patience`. `loss` empty: says farewell, and ends the process.
  std::shared_ptr<Group> join(int rank, const std::vector<TcpRank>& ranks, const TcpKey& key,
                              std::chrono::seconds patience, TcpLoss loss = {}) const;

 private:
  TcpSocket socket_;
};

}  // namespace ingot
