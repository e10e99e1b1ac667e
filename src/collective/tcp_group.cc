#include "collective/tcp_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "collective/lost_rank.h"
#include "collective/rank_watch.h"
#include "core/error.h"

namespace ingot {
namespace {

using Clock = TcpSocket::Clock;
using Letter = std::vector<std::byte>;

constexpr std::chrono::milliseconds kLook{500};       // how soon a wait within a step notices that the group is broken
constexpr std::chrono::milliseconds kFarewell{1000};  // for the others to say goodbye, too
constexpr int kSpins = 200;                           // looks before a wait within a step sleeps, of about 0.1 us

const std::string kClosed = " is gone (its connection is closed)";

// What is said outside of steps: a head, and `size` bytes.
enum class Kind : uint32_t { beat, word, answer, note, bye, fault };
struct Head {
  Kind kind = Kind::beat;
  uint32_t zero = 0;
  uint64_t size = 0;
};

uint64_t most_bytes(Kind kind) {
  switch (kind) {
    case Kind::word:                                // a step as it is staged
    case Kind::answer: return uint64_t{256} << 20;  // what it gave
    case Kind::note: return uint64_t{1} << 20;
    case Kind::fault: return 4096;  // of words: why it gives up; of rank 0: why all of them end
    default: return 0;
  }
}

// Another rank: the links to it, and what it has said that nobody has taken yet.
struct Peer {
  TcpLinks links;
  std::timed_mutex writing;  // of words
  std::deque<Letter> words, answers, notes;
  bool left = false;
  // The listener's alone.
  bool closed = false;
  Head head;
  size_t head_bytes = 0;
  Letter letter;
  size_t letter_bytes = 0;
};

std::vector<std::string> machines_of(const std::vector<TcpRank>& ranks) {
  std::vector<std::string> machines;
  for (const TcpRank& rank : ranks) machines.push_back(rank.machine);
  return machines;
}

std::vector<int> others_than(int rank, size_t ranks) {
  std::vector<int> others;
  for (int other = 0; other < static_cast<int>(ranks); ++other)
    if (other != rank) others.push_back(other);
  return others;
}

class TcpGroup final : public Group {
 public:
  TcpGroup(int rank, const std::vector<TcpRank>& ranks, std::vector<TcpLinks> links, TcpLoss loss)
      : rank_(rank),
        ranks_(ranks),
        others_(others_than(rank, ranks.size())),
        peers_(ranks.size()),
        loss_(std::move(loss)),
        watch_(rank, machines_of(ranks), others_,
               [this](const std::string& why, bool is_said) { fail(why, is_said); }) {
    for (size_t i = 0; i < links.size(); ++i) peers_[i].links = std::move(links[i]);
    for (const int other : others_) watch_.heard(other);  // they have met
    listener_ = std::thread([this] { listen(); });
  }

  ~TcpGroup() override {
    leaving_ = Clock::now() + kFarewell;
    is_leaving_ = true;
    for (const int other : others_) {
      Peer& peer = peer_at(other);
      const std::lock_guard lock(peer.writing);
      const Head bye{.kind = Kind::bye};
      peer.links.words.write(std::as_bytes(std::span(&bye, 1)), Clock::now() + kFarewell);
      ::shutdown(peer.links.words.fd(), SHUT_WR);
    }
    listener_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  int neighbours() const override {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [this](const TcpRank& other) {
      return other.memory == ranks_[static_cast<size_t>(rank_)].memory;
    }));
  }
  std::string machine() const override { return ranks_[static_cast<size_t>(rank_)].machine; }

  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    const Exchange one{peer, out, in};
    exchange_all({&one, 1});
  }
  void send(int peer, std::span<const std::byte> bytes) override { exchange(peer, bytes, {}); }
  void receive(int peer, std::span<std::byte> bytes) override { exchange(peer, {}, bytes); }

  // All under way at once: each goes as far as its socket takes and gives.
  void exchange_all(std::span<const Exchange> with) override {
    under_way_.assign(with.begin(), with.end());
    for (int looks = 0;;) {
      bool has_moved = false, is_done = true;
      for (Exchange& one : under_way_) {
        const TcpSocket& link = peer_at(one.peer).links.steps;
        const ptrdiff_t sent = one.out.empty() ? 0 : link.write_some(one.out);
        const ptrdiff_t got = one.in.empty() ? 0 : link.read_some(one.in);
        if (sent < 0 || got < 0) lose(one.peer);
        one.out = one.out.subspan(static_cast<size_t>(sent));
        one.in = one.in.subspan(static_cast<size_t>(got));
        has_moved |= sent > 0 || got > 0;
        is_done &= one.out.empty() && one.in.empty();
      }
      if (is_done) return;
      check();
      looks = has_moved ? 0 : looks + 1;
      if (looks > kSpins) wait_for_steps();
    }
  }

  void tell(std::span<const std::byte> message) override {
    for (const int other : others_) say(other, Kind::word, message);
  }
  std::vector<std::byte> hear() override { return take(peers_[0], peers_[0].words); }

  void answer(std::span<const std::byte> bytes) override { say(0, Kind::answer, bytes); }
  void take_answer(int rank, std::span<std::byte> bytes) override {
    Peer& from = peer_at(rank);
    const Letter letter = take(from, from.answers);
    if (letter.size() != bytes.size())
      lose(rank, from.left ? " is gone (it has left)" : " is gone (its answer is of another step)");
    std::memcpy(bytes.data(), letter.data(), letter.size());
  }

  std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) override {
    for (const int other : others_) say(other, Kind::note, note);
    std::vector<std::vector<std::byte>> notes;
    for (int peer = 0; peer < size(); ++peer) {
      Peer& from = peer_at(peer);
      notes.push_back(peer == rank_ ? Letter(note.begin(), note.end()) : take(from, from.notes));
    }
    return notes;
  }

  // Rank 0 says why, to its clients too.
  void abort(const std::string& why) override {
    if (rank_ != 0) {
      send_fault(0, why);
      std::this_thread::sleep_for(RankWatch::kGrace);
    }
    fail(fmt::format("{}: {}", watch_.name_of(rank_), why), false);
    std::_Exit(1);
  }

 private:
  Peer& peer_at(int rank) { return peers_[static_cast<size_t>(rank)]; }

  void say(int peer, Kind kind, std::span<const std::byte> bytes) {
    Peer& to = peer_at(peer);
    const Head head{.kind = kind, .size = bytes.size()};
    if (bytes.size() > most_bytes(kind))
      throw_error(ErrorKind::internal, "{} bytes are more than ranks say at once", bytes.size());
    check();
    const std::lock_guard lock(to.writing);
    for (std::span<const std::byte> part : {std::as_bytes(std::span(&head, 1)), bytes})
      while (!part.empty()) {
        const ptrdiff_t count = to.links.words.write_some(part);
        if (count < 0) lose(peer);
        part = part.subspan(static_cast<size_t>(count));
        if (count > 0) continue;  // to the end of the letter, also of a broken group: a last word may follow
        check();
        to.links.words.wait(true, Clock::now() + kLook);
      }
  }

  // As far as it goes: the other may hang.
  void send_fault(int peer, const std::string& why) {
    Peer& to = peer_at(peer);
    const std::string text = why.substr(0, most_bytes(Kind::fault));
    const Head head{.kind = Kind::fault, .size = text.size()};
    const auto until = Clock::now() + RankWatch::kBeat;
    const std::unique_lock lock(to.writing, until);
    if (!lock) return;
    if (to.links.words.write(std::as_bytes(std::span(&head, 1)), until))
      to.links.words.write(std::as_bytes(std::span(text)), until);
  }

  // The next letter; empty: the rank has left.
  Letter take(const Peer& from, std::deque<Letter>& letters) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !letters.empty() || from.left || is_lost_; });
    if (letters.empty()) {
      lock.unlock();
      check();
      return {};
    }
    Letter letter = std::move(letters.front());
    letters.pop_front();
    return letter;
  }

  // Rank `peer` is gone. Returns by an exception, once the watch has said so.
  [[noreturn]] void lose(int peer, const std::string& what = kClosed) {
    watch_.lost(peer, what);
    stop();
  }

  // The group is broken.
  void fail(const std::string& why, bool is_said) {
    {
      const std::lock_guard lock(mutex_);
      if (is_lost_) return;
      reason_ = why;
      is_lost_ = true;
    }
    changed_.notify_all();
    if (rank_ == 0)
      for (const int other : others_) send_fault(other, why);
    loss_(why, is_said);
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
  }

  void check() {
    if (is_lost_) stop();
  }
  // While the process ends, whoever waits for another rank goes on waiting: only where it goes on after all is that an
  // error.
  [[noreturn]] void stop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_over_; });
    throw Error(ErrorKind::device, reason_);
  }

  void wait_for_steps() {
    waiting_.clear();
    for (const Exchange& one : under_way_)
      if (const int events = (one.in.empty() ? 0 : POLLIN) | (one.out.empty() ? 0 : POLLOUT))
        waiting_.push_back(
            {.fd = peer_at(one.peer).links.steps.fd(), .events = static_cast<short>(events), .revents = 0});
    ::poll(waiting_.data(), static_cast<nfds_t>(waiting_.size()), static_cast<int>(kLook.count()));
  }

  // Says that this rank lives, and hears what the others say.
  void listen() {
    Clock::time_point next_beat = Clock::now();
    while (!is_lost_) {
      if (is_leaving_ && (Clock::now() >= leaving_ || all_left())) return;
      if (Clock::now() >= next_beat) {
        next_beat = Clock::now() + RankWatch::kBeat;
        for (const int other : others_)
          if (!is_leaving_) beat(peer_at(other));
      }
      std::vector<pollfd> open;
      for (const int other : others_)
        open.push_back(
            {.fd = is_closed(peer_at(other)) ? -1 : peer_at(other).links.words.fd(), .events = POLLIN, .revents = 0});
      ::poll(open.data(), static_cast<nfds_t>(open.size()), milliseconds_until(next_beat));
      for (const int other : others_)
        if (!is_lost_) hear_from(other);
    }
  }

  static bool is_closed(const Peer& peer) { return peer.left || peer.closed; }
  bool all_left() {
    return std::ranges::all_of(others_, [this](int other) { return is_closed(peer_at(other)); });
  }

  static void beat(Peer& peer) {
    if (is_closed(peer)) return;
    const std::unique_lock lock(peer.writing, std::try_to_lock);
    if (!lock) return;  // whatever is being said shows it as well
    const Head head;
    const auto bytes = std::as_bytes(std::span(&head, 1));
    const ptrdiff_t count = peer.links.words.write_some(bytes);
    if (count > 0) peer.links.words.write(bytes.subspan(static_cast<size_t>(count)), Clock::now() + RankWatch::kBeat);
  }

  void hear_from(int rank) {
    Peer& peer = peer_at(rank);
    while (!is_closed(peer)) {
      const bool is_head = peer.head_bytes < sizeof peer.head;
      const std::span<std::byte> into = is_head
                                            ? std::as_writable_bytes(std::span(&peer.head, 1)).subspan(peer.head_bytes)
                                            : std::span(peer.letter).subspan(peer.letter_bytes);
      const ptrdiff_t count = into.empty() ? 0 : peer.links.words.read_some(into);
      if (count < 0) {
        peer.closed = true;
        if (!is_leaving_) watch_.lost(rank, kClosed);
        return;
      }
      if (count > 0) watch_.heard(rank);
      (is_head ? peer.head_bytes : peer.letter_bytes) += static_cast<size_t>(count);
      if (is_head && peer.head_bytes == sizeof peer.head) {
        if (peer.head.size > most_bytes(peer.head.kind)) {
          peer.closed = true;
          return watch_.lost(rank, " is gone (it said what no rank says)");
        }
        peer.letter.resize(peer.head.size);
      }
      if (peer.head_bytes == sizeof peer.head && peer.letter_bytes == peer.letter.size())
        deliver(rank, peer);
      else if (count == 0)
        return;
    }
  }

  void deliver(int rank, Peer& peer) {
    if (peer.head.kind == Kind::fault) {
      peer.closed = true;  // nothing is expected of it any more
      const std::string why(reinterpret_cast<const char*>(peer.letter.data()), peer.letter.size());
      if (rank_ == 0) return watch_.lost(rank, ": " + why);
      if (rank == 0) return fail(why, true);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (peer.head.kind == Kind::word) peer.words.push_back(std::move(peer.letter));
      if (peer.head.kind == Kind::answer) peer.answers.push_back(std::move(peer.letter));
      if (peer.head.kind == Kind::note) peer.notes.push_back(std::move(peer.letter));
      if (peer.head.kind == Kind::bye) peer.left = true;
    }
    if (peer.left) watch_.left(rank);
    changed_.notify_all();
    peer.letter = {};
    peer.head_bytes = peer.letter_bytes = 0;
  }

  const int rank_;
  const std::vector<TcpRank> ranks_;
  const std::vector<int> others_;
  std::vector<Peer> peers_;  // by rank; this one's is empty
  const TcpLoss loss_;
  std::vector<Exchange> under_way_;  // what is left of exchange_all()
  std::vector<pollfd> waiting_;
  std::mutex mutex_;  // of what peers have said, and of the reason
  std::condition_variable changed_;
  std::string reason_;
  std::atomic<bool> is_lost_ = false, is_leaving_ = false;
  bool is_over_ = false;       // the loss was told, and this process still lives
  Clock::time_point leaving_;  // until when others are waited for
  RankWatch watch_;
  std::thread listener_;
};

void end_process(const std::string& reason, bool is_said) {
  if (!is_said) say_farewell(reason);
  std::_Exit(1);
}

}  // namespace

std::shared_ptr<Group> TcpListener::join(int rank, const std::vector<TcpRank>& ranks, const TcpKey& key,
                                         std::chrono::seconds patience, TcpLoss loss) const {
  if (rank < 0 || rank >= static_cast<int>(ranks.size()))
    throw_error(ErrorKind::bad_call, "rank {}: there are {}", rank, ranks.size());
  std::vector<std::string> addresses;
  for (const TcpRank& other : ranks) addresses.push_back(other.address);
  std::vector<TcpLinks> links = meet(socket_, rank, addresses, key, Clock::now() + patience);
  return std::make_shared<TcpGroup>(rank, ranks, std::move(links), loss ? std::move(loss) : end_process);
}

}  // namespace ingot
