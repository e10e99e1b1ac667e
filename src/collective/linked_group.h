#pragma once

#include <memory>
#include <utility>

#include "collective/group.h"

namespace ingot {

// A group whose ranks have a faster link than the one that connected them: members override what goes over it. The rest
// goes the way of `words`.
class LinkedGroup : public Group {
 public:
  explicit LinkedGroup(std::shared_ptr<Group> words) : words_(std::move(words)) {}

  int rank() const override { return words_->rank(); }
  int size() const override { return words_->size(); }
  int neighbours() const override { return words_->neighbours(); }
  std::string machine() const override { return words_->machine(); }

  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in) override {
    words_->exchange(peer, out, in);
  }
  void send(int peer, std::span<const std::byte> bytes) override { words_->send(peer, bytes); }
  void receive(int peer, std::span<std::byte> bytes) override { words_->receive(peer, bytes); }
  void exchange_all(std::span<const Exchange> with) override { words_->exchange_all(with); }

  void tell(std::span<const std::byte> message) override { words_->tell(message); }
  std::vector<std::byte> hear() override { return words_->hear(); }
  void answer(std::span<const std::byte> bytes) override { words_->answer(bytes); }
  void take_answer(int rank, std::span<std::byte> bytes) override { words_->take_answer(rank, bytes); }
  std::vector<std::vector<std::byte>> compare(std::span<const std::byte> note) override {
    return words_->compare(note);
  }
  void abort(const std::string& why) override { words_->abort(why); }

 private:
  std::shared_ptr<Group> words_;
};

}  // namespace ingot
