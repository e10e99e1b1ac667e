#include "collective/mpi_beats.h"

#include <utility>

namespace ingot {
namespace {

constexpr size_t kMostWords = 2000;  // characters of a reason to give up

// The ranks that one hears from: rank 0 from all, the others from rank 0.
std::vector<int> heard_by(int rank, size_t ranks) {
  if (rank != 0) return {0};
  std::vector<int> others;
  for (size_t other = 1; other < ranks; ++other) others.push_back(static_cast<int>(other));
  return others;
}

}  // namespace

MpiBeats::MpiBeats(const MpiLibrary& mpi, MPI_Comm beats, int rank, std::vector<std::string> machines,
                   RankWatch::End end)
    : mpi_(mpi), beats_(beats), watch_(rank, machines, heard_by(rank, machines.size()), std::move(end)) {
  for (const int other : heard_by(rank, machines.size())) peers_.push_back({.rank = other});
  speaker_ = std::thread([this] { speak(); });
}

// The speaker goes first: it may be held up, which the watch sees.
MpiBeats::~MpiBeats() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  speaker_.join();
}

void MpiBeats::give_up(const std::string& why) const {
  const std::string words = ": " + why.substr(0, kMostWords);
  mpi_.Send(words.data(), static_cast<int>(words.size()), mpi_.byte, 0, 0, beats_);
}

// A beat to one that takes none waits for the last.
void MpiBeats::beat(Peer& peer) const {
  static const char kByte = 1;
  if (peer.sending) {
    int done = 0;
    mpi_.Test(&peer.sent, &done, MPI_STATUS_IGNORE);
    if (done == 0) return;
  }
  mpi_.Isend(&kByte, 1, mpi_.byte, peer.rank, 0, beats_, &peer.sent);
  peer.sending = true;
}

// More than a byte is why it gives up.
void MpiBeats::listen(const Peer& peer) {
  for (;;) {
    int there = 0, count = 0;
    MPI_Message message{};
    MPI_Status status{};
    mpi_.Improbe(peer.rank, 0, beats_, &there, &message, &status);
    if (there == 0) return;
    mpi_.Get_count(&status, mpi_.byte, &count);
    std::string words(static_cast<size_t>(count), '\0');
    mpi_.Mrecv(words.data(), count, mpi_.byte, &message, MPI_STATUS_IGNORE);
    watch_.heard(peer.rank);
    if (count > 1) watch_.lost(peer.rank, words);
  }
}

void MpiBeats::speak() {
  for (;;) {
    for (Peer& peer : peers_) {
      watch_.speaks_to(peer.rank);
      beat(peer);
      listen(peer);
    }
    watch_.speaks_to(-1);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, RankWatch::kBeat, [this] { return stops_; })) return;
  }
}

}  // namespace ingot
