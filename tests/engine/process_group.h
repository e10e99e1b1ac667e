#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "collective/group.h"

namespace ingot::testing {

// A group of two processes that one has forked: a socket for each kind of what they say.
class ProcessGroup final : public Group {
 public:
  struct Lines {
    Lines() {
      for (auto& line : ends)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, line.data()) != 0) std::abort();
    }
    std::array<std::array<int, 2>, 3> ends;  // of steps, of words and notes, of answers; by rank
  };
  ProcessGroup(const Lines& lines, int rank) : rank_(rank) {
    for (size_t i = 0; i < lines.ends.size(); ++i) {
      line_[i] = lines.ends[i][static_cast<size_t>(rank)];
      close(lines.ends[i][static_cast<size_t>(1 - rank)]);
    }
  }
  ~ProcessGroup() override {
    if (rank_ == 0) tell({});
  }

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  int neighbours() const override { return 2; }
  std::string machine() const override { return "here"; }
  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    send(peer, out);
    receive(peer, in);
  }
  void send(int, std::span<const std::byte> bytes) override { put(line_[0], bytes); }
  void receive(int, std::span<std::byte> bytes) override { take(line_[0], bytes); }
  void tell(std::span<const std::byte> message) override { put_letter(message); }
  std::vector<std::byte> hear() override { return take_letter(); }
  void answer(std::span<const std::byte> bytes) override { put(line_[2], bytes); }
  void take_answer(int, std::span<std::byte> bytes) override { take(line_[2], bytes); }
  std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) override {
    put_letter(note);
    std::vector<std::vector<std::byte>> notes(2, {note.begin(), note.end()});
    notes[static_cast<size_t>(1 - rank_)] = take_letter();
    return notes;
  }
  void abort(const std::string&) override { std::abort(); }

 private:
  static void put(int line, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = write(line, bytes.data(), bytes.size());
      if (n <= 0) std::abort();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  static void take(int line, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = read(line, bytes.data(), bytes.size());
      if (n <= 0) std::abort();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void put_letter(std::span<const std::byte> bytes) {
    const size_t size = bytes.size();
    put(line_[1], std::as_bytes(std::span(&size, 1)));
    put(line_[1], bytes);
  }
  std::vector<std::byte> take_letter() {
    size_t size = 0;
    take(line_[1], std::as_writable_bytes(std::span(&size, 1)));
    std::vector<std::byte> letter(size);
    take(line_[1], letter);
    return letter;
  }

  int rank_;
  std::array<int, 3> line_{};
};

}  // namespace ingot::testing
