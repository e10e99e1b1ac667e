#include "collective/mpi_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace ingot {
namespace {

constexpr std::chrono::milliseconds kBeat{250};
// Counted in beats of our own: a machine that sleeps, or stops all ranks, stops the count too.
constexpr int kMostSilent = 11;

}  // namespace

MpiWatch::MpiWatch(const MpiLibrary& mpi, MPI_Comm beats, int rank, std::vector<std::string> machines)
    : mpi_(mpi), beats_(beats), rank_(rank), machines_(std::move(machines)), thread_([this] { run(); }) {}

MpiWatch::~MpiWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool MpiWatch::heard_of(int rank) const {
  for (bool heard = false;; heard = true) {
    int there = 0;
    MPI_Message message{};
    mpi_.Improbe(rank, 0, beats_, &there, &message, MPI_STATUS_IGNORE);
    if (there == 0) return heard;
    char beat = 0;
    mpi_.Mrecv(&beat, 1, mpi_.byte, &message, MPI_STATUS_IGNORE);
  }
}

void MpiWatch::run() {
  const int ranks = static_cast<int>(machines_.size());
  std::vector<int> silent(machines_.size(), 0);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank_ || (rank_ != 0 && peer != 0)) continue;
      const char beat = 1;
      mpi_.Send(&beat, 1, mpi_.byte, peer, 0, beats_);
      int& beats = silent[static_cast<size_t>(peer)];
      beats = heard_of(peer) ? 0 : beats + 1;
      if (beats <= kMostSilent) continue;
      fmt::print(stderr, "ingot: rank {} on {} has not answered for 3 s; all ranks end\n", peer,
                 machines_[static_cast<size_t>(peer)]);
      std::fflush(stderr);
      mpi_.Abort(mpi_.world, 1);
    }
    changed_.wait_for(lock, kBeat, [this] { return stopping_; });
  }
}

}  // namespace ingot
