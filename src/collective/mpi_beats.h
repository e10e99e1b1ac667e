#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collective/mpi_library.h"
#include "collective/rank_watch.h"

namespace ingot {

// How ranks that MPI connects tell one another that they live: its calls wait forever for one that died or hangs, and
// mpirun, which ends the others when a process dies, tells nobody why. Rank 0 and each of the others send a byte, from
// a thread of their own: one that stopped in the midst of a message in shared memory holds up every call of MPI here,
// and the watch, which makes none, sees that.
class MpiBeats {
 public:
  // `beats`: a communicator for this alone. `machines`: of all ranks.
  MpiBeats(const MpiLibrary& mpi, MPI_Comm beats, int rank, std::vector<std::string> machines, RankWatch::End end);
  ~MpiBeats();
  MpiBeats(const MpiBeats&) = delete;
  MpiBeats& operator=(const MpiBeats&) = delete;

  // Tells rank 0 that this one cannot go on.
  void give_up(const std::string& why) const;
  std::string name_of(int rank) const { return watch_.name_of(rank); }

 private:
  struct Peer {
    int rank = 0;
    bool sending = false;
    MPI_Request sent{};  // the last beat
  };

  void speak();
  void beat(Peer& peer) const;
  void listen(const Peer& peer);

  const MpiLibrary& mpi_;
  const MPI_Comm beats_;
  std::vector<Peer> peers_;
  RankWatch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::thread speaker_;
};

}  // namespace ingot
