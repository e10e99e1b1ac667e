#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/completion.h"

namespace ingot::cli {

// Where the lines of a chat come from: a terminal with editing and a history, or anything else that has lines.
class LineReader {
 public:
  enum class Event { line, interrupt, end };

  virtual ~LineReader() = default;
  // Waits for a line. `line` has no line end at its end; one that was pasted may have some inside. After an interrupt
  // (Ctrl-C) it has what was thrown away.
  virtual Event read(std::string_view prompt, std::string& line) = 0;
  // Puts a whole message into the history.
  virtual void remember(const std::string& message) = 0;

  // Edits on the terminal; the history is kept in `history_file` (readable by its owner only) unless that is empty.
  // `complete` gets what stands before the cursor when Tab is pressed.
  using Complete = std::function<Completion(std::string_view before_cursor)>;
  static std::unique_ptr<LineReader> terminal(std::string history_file, Complete complete);
  // Reads standard input as it is.
  static std::unique_ptr<LineReader> plain();
};

// Columns of the terminal that standard output is.
int terminal_columns();

// Where programs keep what they remember of a user: XDG_STATE_HOME/ingot/NAME, else ~/.local/state/ingot/NAME. Makes
// the folder; empty when there is none to be had.
std::string state_file(std::string_view name);

// How text is dressed up; every method gives an empty string where colours are unwanted (NO_COLOR, TERM=dumb, not a
// terminal).
class Style {
 public:
  explicit Style(bool terminal);
  std::string_view accent() const { return on_ ? "\x1b[1;33m" : ""; }
  std::string_view faint() const { return on_ ? "\x1b[2m" : ""; }
  std::string_view warning() const { return on_ ? "\x1b[31m" : ""; }
  std::string_view reset() const { return on_ ? "\x1b[0m" : ""; }

 private:
  bool on_;
};

// While one exists, Ctrl-C sets a flag instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  bool interrupted() const;
  void forget();  // what came so far

 private:
  struct Previous;
  std::unique_ptr<Previous> previous_;
};

}  // namespace ingot::cli
