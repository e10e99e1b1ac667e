#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/llm.h"

namespace ingot {

// Looks for stop strings in a text that comes in pieces. What may still become a stop string is held back, so nothing
// ever handed out has to be taken back. Time is linear in the text, whatever the stop strings are.
class StopText {
 public:
  StopText(StopStrings stops, bool include);

  // Appends to `out` what is certain. True when a stop string is complete: `out` then ends before it (or after it, when
  // it is to be included) and the rest of the text is dropped.
  bool push(std::string_view text, std::string& out);
  // The text ends here: what was held back is text after all.
  void finish(std::string& out);
  // As push(), but the text cannot stop (min_tokens is not reached).
  void pass(std::string_view text, std::string& out);

  const std::string& found() const { return found_; }

 private:
  StopStrings stops_;
  bool include_;
  std::vector<int32_t> matched_;  // of each stop string: how much of its beginning is the end of the text so far
  std::string held_;
  std::string found_;
};

}  // namespace ingot
