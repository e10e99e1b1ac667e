#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "core/counted.h"
#include "core/error.h"
#include "core/memory.h"
#include "hub/cache.h"
#include "hub/download.h"
#include "hub/file_lock.h"
#include "hub/remote.h"
#include "hub/select_files.h"

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConnections = 8;

using Note = std::function<void(const std::string& line)>;
using Report = std::function<void(uint64_t done, uint64_t total)>;

// Runs work(client, i, patience) for every i < count on a few threads, each with its own connection. The first error
// ends it and is thrown; those still at work are told to stop.
template <typename Work>
void in_parallel(size_t count, const Note& note, const Work& work) {
  std::atomic<bool> stop{false};
  const Patience patience{.stop = &stop, .note = note};
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&] {
    try {
      HttpClient client;
      for (size_t i = next++; i < count && !stop; i = next++) work(client, i, patience);
    } catch (...) {
      const std::lock_guard guard(mutex);
      if (!first) first = std::current_exception();
      stop = true;
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(count, kConnections); ++i) threads.emplace_back(run);
  } catch (const std::system_error&) {  // no more threads to be had: fewer will do
  }
  run();
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void refuse_offline(const HubSettings& settings, const ModelName& name) {
  if (!settings.offline) return;
  throw_error(
      ErrorKind::io,
      "{}: is no file or folder here and not complete in {}, and HF_HUB_OFFLINE forbids to fetch it; unset that",
      name.text(), settings.cache.string());
}

void check_room(const Cache& cache, const ModelName& name, uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(cache.root(), error);
  if (error || space.available >= needed) return;
  throw_error(ErrorKind::io, "{}: needs {} more in {}, where {} are free; make room, or set HF_HOME to another disk",
              name.text(), format_bytes(needed), cache.root().string(), format_bytes(space.available));
}

// Counts bytes of all connections together.
class Progress {
 public:
  Progress(const Report& report, uint64_t done, uint64_t total) : report_(report), done_(done), total_(total) {}
  void advance(int64_t bytes) {
    const std::lock_guard guard(mutex_);
    done_ += static_cast<uint64_t>(bytes);
    report_(std::min(done_, total_), total_);
  }

 private:
  const Report& report_;
  std::mutex mutex_;
  uint64_t done_;
  uint64_t total_;
};

void fetch_all(const HubSettings& settings, const Cache& cache, const ModelName& name, const std::string& commit,
               const std::vector<RemoteFile>& files, const Report& report, const Note& note) {
  uint64_t total = 0;
  uint64_t present = 0;
  std::vector<const RemoteFile*> missing;
  std::set<std::string> hashes;
  for (const RemoteFile& file : files) {
    if (!hashes.insert(file.hash).second) continue;  // two files with the same content are one blob
    const fs::path blob = cache.blob(name.repo, file.hash);
    total += file.size;
    present += bytes_present(blob, file);
    if (!fs::exists(blob)) missing.push_back(&file);
  }
  if (missing.empty()) return;
  check_room(cache, name, total - present);
  // The largest first, so that none of them is left for the end.
  std::stable_sort(missing.begin(), missing.end(),
                   [](const RemoteFile* a, const RemoteFile* b) { return a->size > b->size; });
  note(fmt::format("{}: fetching {} in {}{}", name.text(), format_bytes(total - present),
                   counted(static_cast<int64_t>(missing.size()), "file"),
                   present > 0 ? fmt::format(" ({} are here already)", format_bytes(present)) : ""));
  Progress progress(report, present, total);
  in_parallel(missing.size(), note, [&](HttpClient& client, size_t i, const Patience& patience) {
    const RemoteFile& file = *missing[i];
    const fs::path blob = cache.blob(name.repo, file.hash);
    const FileLock lock(cache.lock(name.repo, file.hash), [&] {
      note(fmt::format("{}: another program is fetching {}; waiting", name.repo, file.path));
    });
    if (fs::exists(blob)) {  // another program brought it while we waited
      progress.advance(static_cast<int64_t>(file.size));
      return;
    }
    download_file(
        client, settings, name, commit, file, blob, [&](int64_t bytes) { progress.advance(bytes); }, patience);
  });
}

}  // namespace

fs::path pull_model(const HubSettings& settings, const ModelName& name, const PullEvents& events) {
  refuse_offline(settings, name);
  std::mutex mutex;
  const Note note = [&](const std::string& line) {
    const std::lock_guard guard(mutex);
    if (events.note) events.note(line);
  };
  const Report report = [&](uint64_t done, uint64_t total) {
    const std::lock_guard guard(mutex);
    if (events.progress) events.progress(done, total);
  };
  const Cache cache(settings.cache);
  HttpClient client;
  const Listing listing = list_remote(client, settings, name, {.note = note});
  const FileSelection selection = select_files(name, listing.files);
  std::vector<RemoteFile> files(selection.files.size());
  in_parallel(files.size(), note, [&](HttpClient& own, size_t i, const Patience& patience) {
    files[i] = stat_remote(own, settings, name, listing.commit, selection.files[i], patience);
  });

  const FileLock lock(cache.lock(name.repo, "ingot"),
                      [&] { note(fmt::format("{}: another process is at it; waiting", name.repo)); });
  make_folder(cache.repo(name.repo) / "blobs");
  make_folder(cache.repo(name.repo) / "snapshots");
  fetch_all(settings, cache, name, listing.commit, files, report, note);
  // Everything is here and checked; only now does it appear, the weights last, and then its name.
  for (const RemoteFile& file : files) cache.link(name.repo, listing.commit, file.path, file.hash);
  cache.write_ref(name, listing.commit);
  const fs::path folder = cache.snapshot(name.repo, listing.commit);
  return selection.gguf.empty() ? folder : folder / selection.gguf;
}

fs::path find_or_pull_model(const HubSettings& settings, const ModelName& name, const PullEvents& events) {
  if (const auto found = Cache(settings.cache).find(name)) return *found;
  return pull_model(settings, name, events);
}

}  // namespace ingot::hub
