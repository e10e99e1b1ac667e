#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/memory.h"

namespace ingot::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kRedraw = 100ms;  // of the bar
constexpr auto kLine = 5s;       // between two lines of a log
constexpr int kWidth = 24;

std::string in_words(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", std::ceil(seconds));
  return fmt::format("{:.0f} min", std::ceil(seconds / 60));
}

}  // namespace

std::string draw_bar(int percent, int width) {
  const int filled = percent * width / 100;
  return fmt::format("[{:█<{}}{:·<{}}]", "", filled, "", width - filled);
}

Progress::Progress(std::string_view label, Unit unit, bool tells_end)
    : label_(label.empty() ? "" : fmt::format("{} ", label)),
      unit_(unit),
      tells_end_(tells_end),
      terminal_(isatty(STDERR_FILENO) != 0) {}

std::string Progress::describe(uint64_t done, uint64_t total, int percent, std::string_view figure,
                               double seconds) const {
  std::string text = fmt::format("{:3}%", percent);
  const double rate = seconds > 0 && done > first_ ? static_cast<double>(done - first_) / seconds : 0;
  if (unit_ == Unit::bytes) {
    text += fmt::format("  {} of {}", format_bytes(done), format_bytes(total));
    if (rate > 0) text += fmt::format(", {}/s", format_bytes(static_cast<uint64_t>(rate)));
  }
  // The first moments say little about the rest.
  if (rate > 0 && seconds > 0.5 && done < total)
    text += fmt::format(", {} left", in_words(static_cast<double>(total - done) / rate));
  if (!figure.empty()) text += fmt::format(", {}", figure);
  return text;
}

void Progress::update(uint64_t done, uint64_t total, std::string_view figure) {
  const auto now = Clock::now();
  const bool first = !started_;
  if (first) {
    begin_ = last_ = now;
    first_ = done;
    started_ = true;
  }
  const bool ends = done == total && !finished_;
  finished_ = done == total;
  const bool due = terminal_ ? first || ends || now - last_ >= kRedraw : (ends && tells_end_) || now - last_ >= kLine;
  if (!due) return;
  last_ = now;
  const int percent = total == 0 ? 100 : static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * 100);
  const std::string text = describe(done, total, percent, figure, std::chrono::duration<double>(now - begin_).count());
  if (terminal_)
    fmt::print(stderr, "\r{}{} {}\x1b[K", label_, draw_bar(percent, kWidth), text);
  else
    fmt::print(stderr, "ingot: {}{}\n", label_, text);
  std::fflush(stderr);
  drawn_ = terminal_;
}

void ReadingProgress::update(const GenerationSummary& summary) {
  if (summary.prompt_tokens == 0 || std::chrono::steady_clock::now() - begin_ < 500ms) return;
  progress_.update(static_cast<uint64_t>(summary.read_tokens), static_cast<uint64_t>(summary.prompt_tokens),
                   fmt::format("{} of {} tokens", summary.read_tokens, summary.prompt_tokens));
}

void Progress::note(std::string_view line) {
  clear();
  fmt::print(stderr, "ingot: {}\n", line);
}

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

}  // namespace ingot::cli
