#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "ingot/llm.h"

namespace ingot::cli {

// "[████····]"
std::string draw_bar(int percent, int width);

// How far long work is, on stderr: on a terminal one line that is drawn over and gone at the end, else a line now and
// then. Work that takes a moment says nothing outside a terminal.
class Progress {
 public:
  enum class Unit { parts, bytes };

  // `tells_end`: outside a terminal the end is told however soon it comes.
  explicit Progress(std::string_view label, Unit unit = Unit::parts, bool tells_end = false);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `figure` is shown behind the time left: a result so far.
  void update(uint64_t done, uint64_t total, std::string_view figure = {});
  void note(std::string_view line);  // a line of its own
  void clear();                      // before something else is printed

 private:
  using Clock = std::chrono::steady_clock;

  std::string describe(uint64_t done, uint64_t total, int percent, std::string_view figure, double seconds) const;

  std::string label_;  // with a space behind it, unless it is empty
  Unit unit_;
  bool tells_end_;
  bool terminal_;
  bool started_ = false, finished_ = false;
  bool drawn_ = false;  // a bar stands on the terminal
  uint64_t first_ = 0;  // done at the start
  Clock::time_point begin_, last_;
};

// How far a long prompt is, until the answer begins. A short one is read before anything is drawn.
class ReadingProgress {
 public:
  void update(const GenerationSummary& summary);
  void end() { progress_.clear(); }

 private:
  Progress progress_{"reading"};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace ingot::cli
