#include "server/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace ingot::server {
namespace {

using std::chrono::steady_clock;

constexpr int kLookMs = 20;                          // how long to wait for the reader before looking for the end
constexpr std::chrono::milliseconds kFarewell{500};  // for what is kept at the end
// A pipe that can be written to takes this much at once; more might wait for its reader.
constexpr size_t kPiece = PIPE_BUF;

}  // namespace

struct LogWriter::State {
  State(int given, std::function<std::string(uint64_t)> tell_in, size_t most)
      : descriptor(given), tell(std::move(tell_in)), most_bytes(most), thread([this] { run(); }) {}

  void run();
  bool write_piece(std::string_view text, size_t& done) const;
  bool given_up() const { return stopping && steady_clock::now() >= until.load(); }

  const int descriptor;
  const std::function<std::string(uint64_t)> tell;
  const size_t most_bytes;
  std::mutex mutex;
  std::condition_variable changed;
  std::string kept;  // whole lines
  uint64_t untold = 0;
  std::atomic<uint64_t> dropped{0};
  std::atomic<bool> stopping{false};
  std::atomic<steady_clock::time_point> until{steady_clock::time_point::max()};  // of the end
  std::thread thread;                                                           // last: it uses the rest
};

// Writes what goes without waiting long; false when the descriptor is of no use any more.
bool LogWriter::State::write_piece(std::string_view text, size_t& done) const {
  pollfd writable{descriptor, POLLOUT, 0};
  const int ready = poll(&writable, 1, kLookMs);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return true;
  if (ready < 0 || (writable.revents & POLLOUT) == 0) return false;
  const ssize_t written = ::write(descriptor, text.data() + done, std::min(kPiece, text.size() - done));
  if (written < 0) return errno == EINTR || errno == EAGAIN;
  done += static_cast<size_t>(written);
  return true;
}

void LogWriter::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return stopping || !kept.empty(); });
    if (kept.empty()) return;
    std::string text;
    text.swap(kept);
    if (untold > 0) text += tell(std::exchange(untold, 0)) + "\n";
    lock.unlock();
    bool good = true;
    for (size_t done = 0; good && done < text.size() && !given_up();) good = write_piece(text, done);
    lock.lock();
    if (given_up()) return;
  }
}

LogWriter::LogWriter(int descriptor, std::function<std::string(uint64_t)> tell, size_t most_bytes)
    : state_(std::make_unique<State>(descriptor, std::move(tell), most_bytes)) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->until = steady_clock::now() + kFarewell;
    state_->stopping = true;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

void LogWriter::write(std::string_view line) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->kept.size() + line.size() >= state_->most_bytes) {
      ++state_->untold;
      ++state_->dropped;
      return;
    }
    state_->kept += line;
    state_->kept += '\n';
  }
  state_->changed.notify_one();
}

uint64_t LogWriter::dropped() const { return state_->dropped; }

}  // namespace ingot::server
