#include "collective/mpi_tcp.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "collective/lost_rank.h"
#include "collective/networks.h"
#include "collective/tcp_group.h"
#include "core/error.h"
#include "core/settings.h"

namespace ingot {
namespace {

constexpr std::chrono::seconds kPatience{120};       // for all ranks to be found, and again to be connected
constexpr std::chrono::milliseconds kLookEvery{20};  // for one that has not yet said where it is

// What a rank says of itself, in words that have no spaces: its machine, a key, of which rank 0's is taken, its
// process, and where it listens.
struct Card {
  TcpRank rank;
  std::string key, process;

  std::string text() const { return fmt::format("{} {} {} {}", rank.machine, key, process, rank.address); }
  static Card of(const std::string& text) {
    Card card;
    std::istringstream words(text);
    words >> card.rank.machine >> card.key >> card.process >> std::ws;
    std::getline(words, card.rank.address);
    card.rank.memory = card.rank.machine;
    return card;
  }
};

std::string draw_key() {
  std::random_device chance;
  std::string key;
  while (key.size() < 2 * std::tuple_size_v<TcpKey>) key += fmt::format("{:02x}", chance() & 0xff);
  return key;
}

TcpKey key_of(const std::string& text) {
  TcpKey key{};
  if (text.size() != 2 * key.size()) throw_error(ErrorKind::io, "rank 0 has no key");
  for (size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return key;
}

// Names of this launch: a daemon may serve several.
std::string name_of(int rank) {
  return fmt::format("ingot-{}-{}", environment("PMIX_NAMESPACE").value_or("ranks"), rank);
}

void publish(const MpiSession& session, const std::string& text) {
  if (text.size() >= MPI_MAX_PORT_NAME)
    throw_error(ErrorKind::bad_call, "this machine has too many networks: name one, --mca btl_tcp_if_include");
  if (session.mpi.Publish_name(name_of(session.rank).c_str(), session.mpi.no_info, text.c_str()) != MPI_SUCCESS)
    throw_error(ErrorKind::io, "mpirun does not pass on where this rank listens; try INGOT_LINK=mpi");
}

std::string look_up(const MpiSession& session, int rank, std::chrono::steady_clock::time_point until) {
  char text[MPI_MAX_PORT_NAME + 1] = {};
  while (session.mpi.Lookup_name(name_of(rank).c_str(), session.mpi.no_info, text) != MPI_SUCCESS) {
    if (std::chrono::steady_clock::now() > until)
      throw_error(ErrorKind::io, "rank {} has not said where it listens for {} s", rank, kPatience.count());
    std::this_thread::sleep_for(kLookEvery);
  }
  return text;
}

std::shared_ptr<Group> connect(const std::shared_ptr<MpiSession>& session, bool is_far) {
  const MpiLibrary& mpi = session->mpi;
  mpi.Comm_set_errhandler(mpi.world, mpi.errors_return);  // a name that nobody has said yet is no fault
  const std::vector<std::string> hosts = is_far ? own_addresses(environment("OMPI_MCA_btl_tcp_if_include").value_or(""))
                                                : std::vector<std::string>{"127.0.0.1"};
  if (hosts.empty()) throw_error(ErrorKind::io, "this machine has no address in a network that ranks may use");
  const TcpListener listener(hosts.size() == 1 ? hosts[0] : "0.0.0.0");
  const std::string port = listener.address().substr(listener.address().rfind(':'));
  Card own{{.address = {}, .machine = session->machine, .memory = {}}, draw_key(), MpiSession::process()};
  for (const std::string& host : hosts) own.rank.address += (own.rank.address.empty() ? "" : " ") + host + port;
  publish(*session, own.text());

  std::vector<TcpRank> ranks;
  std::string key;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (int rank = 0; rank < session->size; ++rank) {
    const Card card = Card::of(look_up(*session, rank, until));
    ranks.push_back(card.rank);
    if (rank != 0) continue;
    key = card.key;
    session->leader_is(card.process);
  }
  return listener.join(session->rank, ranks, key_of(key), kPatience, [session](const std::string& why, bool is_said) {
    if (is_said)
      std::this_thread::sleep_for(std::chrono::seconds(1));  // rank 0 tells its clients, then ends all
    else
      say_farewell(why);
    session->abort(!is_said);
  });
}

}  // namespace

std::shared_ptr<Group> connect_by_tcp(std::shared_ptr<MpiSession> session, bool is_far) {
  try {
    return connect(session, is_far);
  } catch (const Error& error) {
    fmt::print(stderr, "ingot: rank {} on {}: {}\n", session->rank, session->machine, error.what());
    std::fflush(stderr);
    session->abort();
  }
}

}  // namespace ingot
