#include "cli/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "core/settings.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t interrupt_flag = 0;

void on_interrupt(int) { interrupt_flag = 1; }

class PlainReader : public LineReader {
 public:
  Event read(std::string_view, std::string& line) override {
    return std::getline(std::cin, line) ? Event::line : Event::end;
  }
  void remember(const std::string&) override {}
};

}  // namespace

std::unique_ptr<LineReader> LineReader::plain() { return std::make_unique<PlainReader>(); }

int terminal_columns() {
  winsize size = {};
  constexpr int kUsual = 80;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string state_file(std::string_view name) {
  fs::path folder;
  if (const auto state = environment("XDG_STATE_HOME"))
    folder = fs::path(*state) / "ingot";
  else if (const auto home = environment("HOME"))
    folder = fs::path(*home) / ".local" / "state" / "ingot";
  else
    return {};
  std::error_code error;
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder, error);
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  return fs::is_directory(folder, error) ? (folder / name).string() : std::string();
}

Style::Style(bool terminal) : on_(terminal && !environment("NO_COLOR") && environment("TERM").value_or("") != "dumb") {}

struct InterruptGuard::Previous {
  struct sigaction action = {};
};

InterruptGuard::InterruptGuard() : previous_(std::make_unique<Previous>()) {
  interrupt_flag = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_->action);
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &previous_->action, nullptr); }

bool InterruptGuard::interrupted() const { return interrupt_flag != 0; }
void InterruptGuard::forget() { interrupt_flag = 0; }

}  // namespace ingot::cli
