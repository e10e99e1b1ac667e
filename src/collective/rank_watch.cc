#include "collective/rank_watch.h"

#include <fmt/format.h>

#include <utility>

#include "collective/lost_rank.h"

namespace ingot {
namespace {

// Counted in looks of our own, four a second: a machine that sleeps, or stops all ranks, stops the count too, and where
// programs must wait for their turn it is slower, for the others must as well.
constexpr int kMostSilent = 10;
// Until the first word: a connection may be made by the first beats, one for each of its steps.
constexpr int kMostSilentAtFirst = 60;
// Between the death of a rank and the signal by which mpirun tells the others lie four beats, and as many until it
// kills.
constexpr int kMostSilentInDoubt = 2;
constexpr auto kStandstill = 8 * RankWatch::kBeat;  // of this rank itself

}  // namespace

RankWatch::RankWatch(int rank, std::vector<std::string> machines, const std::vector<int>& watched, End end)
    : rank_(rank), machines_(std::move(machines)), end_(std::move(end)) {
  for (const int other : watched) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = other;
    peers_.back()->grace = rank_ == 0 || other == 0 ? 0 : kGraceBeats;
  }
  judge_ = std::thread([this, begun = std::chrono::steady_clock::now()] { judge(begun); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  judge_.join();
}

RankWatch::Peer* RankWatch::find(int rank) const {
  for (const auto& peer : peers_)
    if (peer->rank == rank) return peer.get();
  return nullptr;
}

void RankWatch::heard(int rank) {
  if (Peer* peer = find(rank)) ++peer->heard;
}

void RankWatch::left(int rank) {
  const std::lock_guard lock(mutex_);
  if (Peer* peer = find(rank)) peer->has_left = true;
}

void RankWatch::lost(int rank, const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    Peer* peer = find(rank);
    if (peer == nullptr || !peer->lost.empty()) return;
    peer->lost = what;
  }
  changed_.notify_all();
}

std::string RankWatch::name_of(int rank) const {
  return fmt::format("rank {} on {}", rank, machines_[static_cast<size_t>(rank)]);
}

// One that stood still itself finds the others gone when it goes on: they have ended because of that, and said so.
void RankWatch::judge(std::chrono::steady_clock::time_point begun) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  Clock::time_point looked = begun, stood_still;
  for (;;) {
    std::string why;
    changed_.wait_for(lock, kBeat, [&] { return stops_ || !(why = verdict()).empty(); });
    if (stops_) return;
    const Clock::time_point now = Clock::now();
    if (now - looked > kStandstill) stood_still = now;
    looked = now;
    if (why.empty()) {
      count();
      why = verdict();
    }
    if (why.empty()) continue;
    lock.unlock();
    return end_(why, rank_ != 0 && now - stood_still < kGrace);
  }
}

// After each beat.
void RankWatch::count() {
  for (const auto& peer : peers_) {
    const uint64_t heard = peer->heard;
    peer->silent = heard != peer->known || peer->has_left ? 0 : peer->silent + 1;
    peer->known = heard;
    if (!peer->lost.empty() && peer->grace > 0) --peer->grace;
  }
}

std::string RankWatch::verdict() const {
  const Peer* silent = nullptr;
  for (const auto& peer : peers_) {
    if (!peer->lost.empty() && peer->grace == 0) return name_of(peer->rank) + peer->lost;
    const int most = peer->known == 0      ? kMostSilentAtFirst
                     : ranks_are_doubted() ? kMostSilentInDoubt
                                           : kMostSilent + (rank_ == 0 || peer->rank == 0 ? 0 : kGraceBeats);
    if (peer->silent > most && (silent == nullptr || peer->rank == with_)) silent = peer.get();
  }
  if (silent == nullptr) return {};
  if (silent->silent <= kMostSilent) return name_of(silent->rank) + " is gone";
  return fmt::format("{} has not answered for {:.0f} s", name_of(silent->rank),
                     std::chrono::duration<double>(kBeat * silent->silent).count());
}

}  // namespace ingot
