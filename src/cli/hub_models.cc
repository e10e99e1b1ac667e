#include "cli/hub_models.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cli/common.h"
#include "core/memory.h"

namespace ingot::cli {
namespace {

using namespace std::chrono_literals;

// How far a download is, on stderr: a bar on a terminal, else a line now and then.
class DownloadProgress {
 public:
  ~DownloadProgress() { clear(); }

  void update(uint64_t done, uint64_t total) {
    const auto now = Clock::now();
    if (!started_) {
      begin_ = last_ = now;
      first_ = done;
      started_ = true;
    }
    const int percent =
        total == 0 ? 100 : static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * 100);
    const bool due = terminal_ ? now - last_ >= 100ms : now - last_ >= 1s && percent / 10 > last_percent_ / 10;
    if (!due && (done < total || finished_)) return;
    finished_ = done == total;
    last_ = now;
    last_percent_ = percent;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const uint64_t rate =
        seconds > 0 && done > first_ ? static_cast<uint64_t>(static_cast<double>(done - first_) / seconds) : 0;
    const std::string sizes =
        fmt::format("{:3}%  {} of {}, {}/s", percent, format_bytes(done), format_bytes(total), format_bytes(rate));
    if (terminal_) {
      constexpr int kWidth = 24;
      fmt::print(stderr, "\r{} {}\x1b[K", draw_bar(percent, kWidth), sizes);
    } else {
      fmt::print(stderr, "ingot: {}\n", sizes);
    }
    std::fflush(stderr);
  }

  void note(const std::string& line) {
    clear();
    fmt::print(stderr, "ingot: {}\n", line);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void clear() const {
    if (terminal_ && started_) fmt::print(stderr, "\r\x1b[K");
  }

  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool started_ = false;
  bool finished_ = false;  // the last line was drawn
  int last_percent_ = 0;
  uint64_t first_ = 0;  // bytes there at the start
  Clock::time_point begin_;
  Clock::time_point last_;
};

using Fetch = std::filesystem::path(const hub::HubSettings&, const hub::ModelName&, const hub::PullEvents&);

std::string fetch(const hub::ModelName& name, Fetch& how) {
  const hub::HubSettings settings = hub::HubSettings::from_environment();
  DownloadProgress progress;
  hub::PullEvents events;
  events.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  events.note = [&](const std::string& line) { progress.note(line); };
  return how(settings, name, events).string();
}

}  // namespace

std::string pull_hub_model(const hub::ModelName& name, bool if_missing) {
  return fetch(name, if_missing ? hub::find_or_pull_model : hub::pull_model);
}

std::optional<std::string> find_hub_model(const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(text, ignored))) return std::nullopt;
  const auto name = hub::parse_model_name(text);
  if (!name) return std::nullopt;
  return fetch(*name, hub::find_or_pull_model);
}

}  // namespace ingot::cli
