#pragma once

#include <string>
#include <string_view>

namespace ingot::cli {

// Puts the lines of one message together: a line that ends with a backslash goes on in the next one, and a line that
// begins with """ goes on, whatever it holds, until one that ends with """.
class MessageLines {
 public:
  // True: the message is complete.
  bool push(std::string_view line);
  bool open() const { return mode_ != Mode::none; }
  bool quoted() const { return quoted_; }  // it stood between """: never a command
  // The message, as valid UTF-8; the object is as new afterwards. Also gives what there is of one that is not complete.
  std::string take();

 private:
  enum class Mode { none, backslash, quotes };
  Mode mode_ = Mode::none;
  bool quoted_ = false;
  std::string text_;
};

// A slash and a word is a command: its name, and the rest without the spaces around it. A path, a comment in code, or
// anything with a space before it is a message.
struct Command {
  std::string name;
  std::string argument;
};
bool is_command(std::string_view message);
Command parse_command(std::string_view message);

// What a terminal may be given of a text that someone else wrote: everything but control characters (line ends and
// tabs stay), so that no answer can move the cursor, change a title or send keys.
std::string printable_text(std::string_view text);

}  // namespace ingot::cli
