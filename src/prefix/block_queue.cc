#include "prefix/block_queue.h"

#include <fmt/format.h>

namespace ingot {

void BlockQueue::append(int32_t block) {
  links_[static_cast<size_t>(block)] = {.previous = tail_, .next = -1};
  (tail_ >= 0 ? links_[static_cast<size_t>(tail_)].next : head_) = block;
  tail_ = block;
}

void BlockQueue::remove(int32_t block) {
  Links& links = links_[static_cast<size_t>(block)];
  (links.previous >= 0 ? links_[static_cast<size_t>(links.previous)].next : head_) = links.next;
  (links.next >= 0 ? links_[static_cast<size_t>(links.next)].previous : tail_) = links.previous;
  links = {};
}

std::vector<bool> BlockQueue::check(const std::string& kind, std::vector<std::string>& faults) const {
  std::vector<bool> queued(links_.size(), false);
  int32_t previous = -1;
  for (int32_t block = head_; block >= 0 && !queued[static_cast<size_t>(block)]; block = after(block)) {
    if (links_[static_cast<size_t>(block)].previous != previous)
      faults.push_back(fmt::format("{} {}: its place in the queue is not linked both ways", kind, block));
    queued[static_cast<size_t>(block)] = true;
    previous = block;
  }
  if (previous != tail_) faults.push_back(fmt::format("the queue of {}s does not end with its last one", kind));
  return queued;
}

}  // namespace ingot
