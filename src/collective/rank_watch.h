#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ingot {

// Notices ranks that die, hang or give up, and ends the group. Ranks tell one another that they live four times a
// second, each transport in its own way, and say here whom they have heard; a thread that does nothing else counts for
// how long that was not so.
class RankWatch {
 public:
  static constexpr std::chrono::milliseconds kBeat{250};
  // For rank 0 to notice, tell clients and end the group, where another rank has noticed first.
  static constexpr int kGraceBeats = 6;
  static constexpr std::chrono::milliseconds kGrace = kGraceBeats * kBeat;
  // Ends this process, and with it the group: why, in a sentence; `is_said`: others have told it. Called once, on a
  // thread of the watch.
  using End = std::function<void(const std::string& why, bool is_said)>;

  // `machines`: of all ranks. `watched`: those that will be heard from here, of which rank 0 is always one.
  RankWatch(int rank, std::vector<std::string> machines, const std::vector<int>& watched, End end);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  void heard(int rank);
  // In order: it is not missed.
  void left(int rank);
  // Whoever speaks for this rank has to do with that one now (-1: with nobody). If he is held up, and so hears nobody,
  // that one is to blame.
  void speaks_to(int rank) { with_ = rank; }
  // What became of it: how a sentence goes on that begins with "rank 1 on studio-2". Rank 0 ends the group at once, and
  // says why; others leave that to it for a while, unless it is rank 0 that is lost.
  void lost(int rank, const std::string& what);

  std::string name_of(int rank) const;

 private:
  struct Peer {
    int rank = 0;
    std::atomic<uint64_t> heard{0};
    uint64_t known = 0;  // of heard, at the last beat
    int silent = 0;      // beats of ours since then
    bool has_left = false;
    std::string lost;  // lost()'s `what`
    int grace = 0;     // beats that are left to rank 0 to end the group
  };

  Peer* find(int rank) const;
  void judge(std::chrono::steady_clock::time_point begun);
  std::string verdict() const;  // why the group must end; empty: it need not
  void count();

  const int rank_;
  const std::vector<std::string> machines_;
  const End end_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<int> with_{-1};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::thread judge_;
};

}  // namespace ingot
