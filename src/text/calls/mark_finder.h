#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "text/calls/input.h"

namespace ingot {

// Finds the first of several marks in a text that grows, the longest where several begin at one place.
class MarkFinder {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  explicit MarkFinder(std::vector<std::string> marks);

  struct Found {
    size_t at;    // what is before has no mark in it
    size_t mark;  // which one is at `at`; kNone: none is, or what is there may become one when more text comes
  };
  Found find(const Input& in) const;  // from in.at on

  const std::string& mark(size_t index) const { return marks_[index]; }

 private:
  std::vector<std::string> marks_;
  std::bitset<256> first_;  // the bytes that marks begin with
};

}  // namespace ingot
