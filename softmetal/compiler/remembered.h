// Programs that were asked for last, with what they were made from. All devices of a process share them: reading a
// library of thousands of lines again takes longer than most kernels run.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "compiler/program.h"

namespace softmetal {

class RememberedPrograms {
 public:
  explicit RememberedPrograms(size_t most) : most_(most) {}

  // Null where it is not known, or no more.
  std::shared_ptr<const Program> find(const std::string& compiler, const std::string& text);
  // Forgets what nobody asked for the longest. Of two threads that made the same program the first one's is kept, and
  // returned.
  std::shared_ptr<const Program> add(const std::string& compiler, const std::string& text, Program program);

 private:
  struct Entry {
    std::string compiler, text;
    std::shared_ptr<const Program> program;
  };
  std::shared_ptr<const Program> find_locked(const std::string& compiler, const std::string& text);

  const size_t most_;
  std::mutex mutex_;
  std::deque<Entry> entries_;  // the last one asked for in front
};

}  // namespace softmetal
