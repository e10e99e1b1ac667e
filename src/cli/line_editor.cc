// Line editing through libedit, which is part of macOS and a small package elsewhere.
#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/chat_input.h"
#include "cli/terminal.h"
#include "core/json.h"

namespace ingot::cli {
namespace {

constexpr size_t kMostEntries = 1000;
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr char kHidden = '\1';           // around what takes no column in a prompt
constexpr size_t kMostPasted = 4 << 20;  // bytes

// libedit counts columns by the locale: without one that knows UTF-8 it would cut characters apart.
void use_utf8_locale() {
  for (const char* name : {"", "C.UTF-8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr && MB_CUR_MAX > 1) return;
  }
}

class Editor : public LineReader {
 public:
  Editor(std::string history_file, Complete complete) : file_(std::move(history_file)), complete_(std::move(complete)) {
    use_utf8_locale();
    has_modes_ = tcgetattr(STDIN_FILENO, &modes_before_) == 0;
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(kMostEntries));
    history(history_, &event, H_SETUNIQUE, 1);
    editor_ = el_init("ingot", stdin, stdout, stderr);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT_ESC, &Editor::prompt_of, kHidden);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL,
           1);  // puts the terminal back in order when a signal ends the program, or its size changes
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_ADDFN, "ingot-interrupt", "give the line up", &Editor::on_interrupt);
    el_set(editor_, EL_ADDFN, "ingot-paste", "insert a pasted text", &Editor::on_paste);
    el_set(editor_, EL_ADDFN, "ingot-newline", "insert a line end", &Editor::on_newline);
    el_set(editor_, EL_ADDFN, "ingot-complete", "complete a command or a file", &Editor::on_tab);
    el_set(editor_, EL_ADDFN, "ingot-end", "leave, or delete a character", &Editor::on_end);
    // Ctrl-C reaches the editor as a key: the signal is switched off while it reads.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    // Between two lines the kernel would swallow a Ctrl-D; with no end-of-file key it waits for the editor like the
    // rest.
    el_set(editor_, EL_SETTY, "-x", "eof=", nullptr);
    // Nor should what is typed during an answer stand in it, be that a Ctrl-C: the editor shows it when its turn comes.
    el_set(editor_, EL_SETTY, "-x", "-echo", nullptr);
    el_set(editor_, EL_BIND, "^C", "ingot-interrupt", nullptr);
    el_set(editor_, EL_BIND, "^I", "ingot-complete", nullptr);
    el_set(editor_, EL_BIND, "^D", "ingot-end", nullptr);
    el_set(editor_, EL_BIND, "\x1b[200~", "ingot-paste", nullptr);
    el_set(editor_, EL_BIND, "\x1b\r", "ingot-newline", nullptr);
    el_set(editor_, EL_BIND, "\x1b\n", "ingot-newline", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(editor_, EL_BIND, "\x1b[3~", "ed-delete-next-char", nullptr);
    el_set(editor_, EL_BIND, "\x1b[1;5C", "em-next-word", nullptr);
    el_set(editor_, EL_BIND, "\x1b[1;5D", "ed-prev-word", nullptr);
    load_history();
  }

  ~Editor() override {
    el_end(editor_);
    history_end(history_);
    if (has_modes_) tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_before_);
  }

  Event read(std::string_view prompt, std::string& line) override {
    prompt_ = dressed(prompt);
    interrupted_ = false;
    // Before the prompt is seen: what is typed at it would be echoed by the kernel, too, and a Ctrl-C would be a
    // signal.
    el_set(editor_, EL_PREP_TERM, 1);
    set_bracketed_paste(true);
    int length = 0;
    const char* text = el_gets(editor_, &length);
    set_bracketed_paste(false);
    line.assign(text == nullptr ? "" : text, text == nullptr || length < 0 ? 0 : static_cast<size_t>(length));
    if (interrupted_) {
      std::fputs("\n", stdout);
      return Event::interrupt;
    }
    if (text == nullptr || length <= 0) return Event::end;
    if (line.ends_with('\n')) line.pop_back();
    return Event::line;
  }

  void remember(const std::string& message) override {
    enter(message);
    if (file_.empty()) return;
    // Each entry is written at once: what was typed survives even when the program does not.
    const int file = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    ::fchmod(file, 0600);
    const std::string text = encoded(message);
    if (::write(file, text.data(), text.size()) < 0) file_.clear();
    ::close(file);
  }

 private:
  static Editor& self(EditLine* editor) {
    Editor* found = nullptr;
    el_get(editor, EL_CLIENTDATA, &found);
    return *found;
  }
  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  static unsigned char on_interrupt(EditLine* editor, int) {
    self(editor).interrupted_ = true;
    return CC_NEWLINE;
  }

  // Ctrl-D leaves only from an empty line.
  static unsigned char on_end(EditLine* editor, int) {
    const LineInfo* line = el_line(editor);
    if (line->buffer == line->lastchar) return CC_EOF;
    if (line->cursor == line->lastchar) return CC_ERROR;
    el_cursor(editor, 1);
    el_deletestr(editor, 1);
    return CC_REFRESH;
  }

  // A second Tab, after which nothing more is certain, lists what it could become.
  static unsigned char on_tab(EditLine* editor, int) {
    Editor& me = self(editor);
    const LineInfo* line = el_line(editor);
    const Completion found = me.complete_({line->buffer, static_cast<size_t>(line->cursor - line->buffer)});
    if (!found.insert.empty()) return el_insertstr(editor, found.insert.c_str()) < 0 ? CC_ERROR : CC_REFRESH;
    if (found.choices.size() < 2) return CC_ERROR;
    std::fputs("\n", stdout);
    for (const std::string& choice : found.choices) fmt::print("{}  ", printable_text(choice));
    std::fputs("\n", stdout);
    return CC_REDISPLAY;
  }

  static unsigned char on_newline(EditLine* editor, int) {
    return el_insertstr(editor, "\n") < 0 ? CC_ERROR : CC_REFRESH;
  }

  // The terminal says where a pasted text begins and ends, so its line ends do not send it piece by piece.
  static unsigned char on_paste(EditLine* editor, int) {
    std::string text;
    char next = 0;
    while (text.size() < kMostPasted && el_getc(editor, &next) == 1) {
      text += next == '\r' ? '\n' : next;
      if (text.ends_with(kPasteEnd)) {
        text.resize(text.size() - kPasteEnd.size());
        break;
      }
    }
    while (text.ends_with('\n')) text.pop_back();
    if (text.empty()) return CC_REFRESH;
    return el_insertstr(editor, text.c_str()) < 0 ? CC_ERROR : CC_REFRESH;
  }

  // libedit loses what is hidden at the very end of a prompt: the last character comes after it.
  static std::string dressed(std::string_view prompt) {
    const Style style(true);
    if (style.accent().empty() || prompt.empty()) return std::string(prompt);
    return fmt::format("{0}{1}{0}{2}{0}{3}{0}{4}", kHidden, style.accent(), prompt.substr(0, prompt.size() - 1),
                       style.reset(), prompt.back());
  }

  static void set_bracketed_paste(bool on) {
    std::fputs(on ? "\x1b[?2004h" : "\x1b[?2004l", stdout);
    std::fflush(stdout);
  }

  void enter(const std::string& message) {
    HistEvent event;
    history(history_, &event, H_ENTER, message.c_str());
  }

  // One JSON text a line, so that messages of several lines keep their shape.
  static std::string encoded(const std::string& message) {
    return nlohmann::json(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  void load_history() {
    std::ifstream file(file_);
    std::vector<std::string> entries;
    for (std::string line; std::getline(file, line);) {
      try {
        const nlohmann::json entry = parse_json(line, file_);
        if (entry.is_string()) entries.push_back(entry.get<std::string>());
      } catch (const JsonError&) {
        continue;  // a line of something else
      }
    }
    const size_t surplus = entries.size() > kMostEntries ? entries.size() - kMostEntries : 0;
    for (size_t i = surplus; i < entries.size(); ++i) enter(entries[i]);
    if (surplus > kMostEntries) shorten({entries.begin() + static_cast<ptrdiff_t>(surplus), entries.end()});
  }

  void shorten(const std::vector<std::string>& entries) {
    const int file = ::open(file_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (file < 0) return;
    std::string text;
    for (const std::string& entry : entries) text += encoded(entry);
    if (::write(file, text.data(), text.size()) < 0) file_.clear();
    ::close(file);
  }

  std::string file_;
  Complete complete_;
  std::string prompt_;
  bool interrupted_ = false;
  bool has_modes_ = false;
  termios modes_before_ = {};  // of the terminal, as this program found them
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> LineReader::terminal(std::string history_file, Complete complete) {
  return std::make_unique<Editor>(std::move(history_file), std::move(complete));
}

}  // namespace ingot::cli
