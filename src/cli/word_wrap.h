#pragma once

#include <string>
#include <string_view>

namespace ingot::cli {

// Breaks a text that comes in pieces between words, so that a terminal does not break it inside them. A word is held
// back until it is known where it ends. Lines between ``` stay as they are: code must be copied as it was written.
class WordWrap {
 public:
  // What can be shown now, for a terminal of so many columns.
  std::string push(std::string_view piece, int columns);
  std::string finish(int columns);  // the rest

 private:
  void place_word(std::string& out, int columns);
  void end_line(std::string& out);

  std::string word_;    // since the last space, with the bytes of a character that is not complete
  std::string spaces_;  // before it
  std::string line_;    // the first characters of the line, to see a fence
  int column_ = 0;
  bool code_ = false;
};

}  // namespace ingot::cli
