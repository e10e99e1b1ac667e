#pragma once

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collective/group.h"

namespace ingot::testing {

// A group of threads of one process: letters in boxes, one box for each sender, receiver and kind.
class ThreadGroup : public Group {
 public:
  template <typename Member = ThreadGroup>
  static std::vector<std::shared_ptr<Group>> make(int ranks) {
    auto office = std::make_shared<Office>();
    std::vector<std::shared_ptr<Group>> groups;
    for (int rank = 0; rank < ranks; ++rank) groups.push_back(std::make_shared<Member>(office, rank, ranks));
    return groups;
  }

  struct Office {
    using Letter = std::vector<std::byte>;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, std::deque<Letter>> boxes[4];  // of steps, of rank 0's words, of notes, of answers

    void put(int box, int from, int to, std::span<const std::byte> bytes) {
      const std::lock_guard lock(mutex);
      boxes[box][{from, to}].emplace_back(bytes.begin(), bytes.end());
      changed.notify_all();
    }
    Letter take(int box, int from, int to) {
      std::unique_lock lock(mutex);
      std::deque<Letter>& letters = boxes[box][{from, to}];
      changed.wait(lock, [&] { return !letters.empty(); });
      Letter letter = std::move(letters.front());
      letters.pop_front();
      return letter;
    }
  };

  ThreadGroup(std::shared_ptr<Office> office, int rank, int ranks)
      : office_(std::move(office)), rank_(rank), ranks_(ranks) {}
  ~ThreadGroup() override { say({}); }

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  int neighbours() const override { return ranks_; }
  std::string machine() const override { return "here"; }
  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    send(peer, out);
    receive(peer, in);
  }
  void send(int peer, std::span<const std::byte> bytes) override { office_->put(0, rank_, peer, bytes); }
  void receive(int peer, std::span<std::byte> bytes) override { open(office_->take(0, peer, rank_), bytes); }
  void tell(std::span<const std::byte> message) override { say(message); }
  std::vector<std::byte> hear() override { return office_->take(1, 0, rank_); }
  void answer(std::span<const std::byte> bytes) override { office_->put(3, rank_, 0, bytes); }
  void take_answer(int rank, std::span<std::byte> bytes) override { open(office_->take(3, rank, rank_), bytes); }
  std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) override {
    std::vector<std::vector<std::byte>> notes;
    for (int rank = 0; rank < ranks_; ++rank) office_->put(2, rank_, rank, note);
    for (int rank = 0; rank < ranks_; ++rank) notes.push_back(office_->take(2, rank, rank_));
    return notes;
  }
  void abort(const std::string&) override { std::abort(); }

 private:
  void open(const Office::Letter& letter, std::span<std::byte> bytes) {
    if (letter.size() != bytes.size()) std::abort();
    if (!letter.empty()) std::memcpy(bytes.data(), letter.data(), letter.size());
  }
  void say(std::span<const std::byte> message) {
    for (int rank = 1; rank_ == 0 && rank < ranks_; ++rank) office_->put(1, 0, rank, message);
  }

  std::shared_ptr<Office> office_;
  int rank_, ranks_;
};

}  // namespace ingot::testing
