#pragma once

#include <string>
#include <string_view>

#include "text/calls/events.h"

namespace ingot {

// Lets content through, without the white space that models put around calls and reasoning: it is layout.
class ContentGate {
 public:
  enum class After { beginning, reasoning, call, section };  // section: its opening mark; calls are expected

  explicit ContentGate(std::string_view separator) : separator_(separator) {}

  void add(std::string_view text, EventWriter& events);
  // A call or reasoning came. What was held is dropped.
  void open(After after);
  void refuse(EventWriter& events);  // what should have been a call is none: in a section, nothing is held any more
  void end(EventWriter& events);     // of a section without calls, or of the text
  bool at_start() const { return !passing_ && (after_ == After::beginning || after_ == After::reasoning); }

 private:
  void pass(EventWriter& events);

  std::string_view separator_;
  After after_ = After::beginning;
  bool passing_ = false;
  std::string held_;
};

// The same for reasoning: white space at its beginning and end is left out.
class ReasoningGate {
 public:
  void add(std::string_view text, EventWriter& events);
  void open() { *this = {}; }

 private:
  bool begun_ = false;
  bool too_long_ = false;  // the white space at hand; it is let through
  std::string held_;       // white space
};

}  // namespace ingot
