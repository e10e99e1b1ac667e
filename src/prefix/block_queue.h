#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

// Blocks that nobody holds, by their numbers, in the order in which they are taken: any of them leaves it, and joins
// its end, at once.
class BlockQueue {
 public:
  explicit BlockQueue(int64_t blocks) : links_(static_cast<size_t>(blocks)) {}

  int32_t first() const { return head_; }  // -1: there is none
  int32_t after(int32_t block) const { return links_[static_cast<size_t>(block)].next; }
  void append(int32_t block);
  void remove(int32_t block);

  // Which blocks are in it. Appends a line for each whose links contradict each other; `kind` names them.
  std::vector<bool> check(const std::string& kind, std::vector<std::string>& faults) const;

 private:
  struct Links {
    int32_t previous = -1, next = -1;
  };
  std::vector<Links> links_;
  int32_t head_ = -1, tail_ = -1;
};

}  // namespace ingot
