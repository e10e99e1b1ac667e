#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

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

// Runs work(client, i) for every i < count on a few threads, each with its own connection. The first error ends it and
// is thrown; `stop` is then set for those still at work.
template <typename Work>
void in_parallel(size_t count, std::atomic<bool>& stop, const Work& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&] {
    try {
      HttpClient client;
      for (size_t i = next++; i < count && !stop; i = next++) work(client, i);
    } catch (...) {
      const std::lock_guard guard(mutex);
      if (!first) first = std::current_exception();
      stop = true;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(count, kConnections); ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void refuse_offline(const HubSettings& settings, const ModelName& name) {
  if (!settings.offline) return;
  throw_error(ErrorKind::io, "{}: is not complete in {}, and HF_HUB_OFFLINE forbids to fetch it; unset that once",
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
  Progress(const PullEvents& events, uint64_t done, uint64_t total) : events_(events), done_(done), total_(total) {}
  void advance(int64_t bytes) {
    const std::lock_guard guard(mutex_);
    done_ += static_cast<uint64_t>(bytes);
    if (events_.progress) events_.progress(std::min(done_, total_), total_);
  }

 private:
  const PullEvents& events_;
  std::mutex mutex_;
  uint64_t done_;
  uint64_t total_;
};

void fetch_all(const HubSettings& settings, const Cache& cache, const ModelName& name, const std::string& commit,
               const std::vector<RemoteFile>& files, const PullEvents& events) {
  uint64_t total = 0;
  uint64_t present = 0;
  std::vector<const RemoteFile*> missing;
  for (const RemoteFile& file : files) {
    const fs::path blob = cache.blob(name.repo, file.hash);
    total += file.size;
    present += bytes_present(blob, file);
    const bool twice =
        std::any_of(missing.begin(), missing.end(), [&](const RemoteFile* other) { return other->hash == file.hash; });
    if (!fs::exists(blob) && !twice) missing.push_back(&file);
  }
  if (missing.empty()) return;
  check_room(cache, name, total - present);
  // The largest first, so that none of them is left for the end.
  std::stable_sort(missing.begin(), missing.end(),
                   [](const RemoteFile* a, const RemoteFile* b) { return a->size > b->size; });
  if (events.note)
    events.note(fmt::format("{}: fetching {} in {} file{}{}", name.text(), format_bytes(total - present),
                            missing.size(), missing.size() == 1 ? "" : "s",
                            present > 0 ? fmt::format(" ({} are here already)", format_bytes(present)) : ""));
  Progress progress(events, present, total);
  std::atomic<bool> stop{false};
  in_parallel(missing.size(), stop, [&](HttpClient& client, size_t i) {
    const RemoteFile& file = *missing[i];
    const fs::path blob = cache.blob(name.repo, file.hash);
    const FileLock lock(cache.lock(name.repo, file.hash));
    if (fs::exists(blob)) return;  // another program brought it while we waited
    download_file(client, settings, name, commit, file, blob, [&](int64_t bytes) { progress.advance(bytes); }, stop);
  });
}

}  // namespace

fs::path pull_model(const HubSettings& settings, const ModelName& name, const PullEvents& events) {
  refuse_offline(settings, name);
  const Cache cache(settings.cache);
  HttpClient client;
  const Listing listing = list_remote(client, settings, name);
  const FileSelection selection = select_files(name, listing.files);

  make_folder(cache.repo(name.repo) / "blobs");
  const FileLock lock(cache.lock(name.repo, "ingot"), [&] {
    if (events.note) events.note(fmt::format("{}: another process is fetching it; waiting", name.repo));
  });
  make_folder(cache.repo(name.repo) / "blobs");  // it may have been removed meanwhile
  std::vector<RemoteFile> files(selection.files.size());
  std::atomic<bool> stop{false};
  in_parallel(files.size(), stop, [&](HttpClient& own, size_t i) {
    files[i] = stat_remote(own, settings, name, listing.commit, selection.files[i]);
  });
  fetch_all(settings, cache, name, listing.commit, files, events);
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
