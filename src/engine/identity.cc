#include "engine/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "core/ceil_div.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/threads.h"
#include "formats/model_location.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{8} << 20;

bool is_hugging_face(const fs::path& file) { return file.extension() == ".safetensors" || file.extension() == ".json"; }

// name-00001-of-00003.gguf: all that begin alike.
bool is_split_of(const fs::path& file, const fs::path& first) {
  const std::string name = first.filename().string();
  const size_t of = name.rfind("-of-");
  return of != std::string::npos && of > 6 && file.extension() == ".gguf" &&
         file.filename().string().starts_with(name.substr(0, of - 5));
}

// The files that decide what the model computes, sorted.
std::vector<fs::path> model_files(const EngineOptions& options) {
  if (options.load_format == "dummy") return {fs::path(options.model) / "config.json"};
  const ModelLocation location = find_model(options.model);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(location.folder.empty() ? "." : location.folder)) {
    const fs::path& file = entry.path();
    if (location.gguf.empty() ? is_hugging_face(file)
                              : file.filename() == location.gguf.filename() || is_split_of(file, location.gguf))
      files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}

struct stat status_of(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) throw_error(ErrorKind::io, "{}: cannot be read", file.string());
  return status;
}

timespec time_of_change(const struct stat& s) {
#if defined(__APPLE__)
  return s.st_ctimespec;
#else
  return s.st_ctim;
#endif
}

// Whoever changes a file changes one of these: the time of the last change cannot be set.
std::string state_of(const struct stat& s) {
#if defined(__APPLE__)
  const timespec modified = s.st_mtimespec;
#else
  const timespec modified = s.st_mtim;
#endif
  const timespec changed = time_of_change(s);
  return fmt::format("{} {} {}.{} {}.{}", s.st_ino, s.st_size, modified.tv_sec, modified.tv_nsec, changed.tv_sec,
                     changed.tv_nsec);
}

std::string name_of_state(const std::vector<fs::path>& files) {
  std::string state;
  for (const fs::path& file : files) {
    const struct stat s = status_of(file);
    state += fmt::format("{} {} {}\n", fs::absolute(file).string(), s.st_dev, state_of(s));
  }
  return hex(sha256({std::as_bytes(std::span(state))}));
}

// How long ago.
std::chrono::nanoseconds since_change(const struct stat& s) {
  using namespace std::chrono;
  const timespec changed = time_of_change(s);
  return system_clock::now().time_since_epoch() - (seconds(changed.tv_sec) + nanoseconds(changed.tv_nsec));
}

// The hash of the hashes of its pieces, which all cores share.
Digest hash_file(const fs::path& file, ThreadPool& pool) {
  const int64_t bytes = status_of(file).st_size, pieces = ceil_div(bytes, kPieceBytes);
  std::vector<Digest> digests(static_cast<size_t>(pieces));
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::atomic<bool> good{fd >= 0};
  pool.run([&](Worker& worker) {
    std::vector<std::byte> piece(static_cast<size_t>(std::min(bytes, kPieceBytes)));
    worker.share(pieces, [&](int64_t i) {
      const auto size = static_cast<size_t>(std::min(kPieceBytes, bytes - i * kPieceBytes));
      for (size_t done = 0; done < size && good;) {
        const ssize_t n = ::pread(fd, piece.data() + done, size - done, i * kPieceBytes + static_cast<int64_t>(done));
        if (n <= 0) good = false;
        if (n > 0) done += static_cast<size_t>(n);
      }
      if (good) digests[static_cast<size_t>(i)] = sha256({std::span(piece).first(size)});
    });
  });
  if (fd >= 0) ::close(fd);
  if (!good) throw_error(ErrorKind::io, "{}: cannot be read", file.string());
  return sha256({std::as_bytes(std::span(digests))});
}

std::string hash_files(const EngineOptions& options, const FileNotes& notes) {
  const std::vector<fs::path> files = model_files(options);
  const std::string state = name_of_state(files);
  if (std::string known = notes.get(state); known.size() == 2 * sizeof(Digest)) return known;
  ThreadPool pool(options.threads > 0 ? options.threads : ThreadPool::available_cpus());
  std::string hashes;
  for (const fs::path& file : files)
    hashes += fmt::format("{} {}\n", file.filename().string(), hex(hash_file(file, pool)));
  const std::string hash = hex(sha256({std::as_bytes(std::span(hashes))}));
  notes.set(state, hash);
  return hash;
}

}  // namespace

std::string files_state(const EngineOptions& options) {
  // Two changes within a tick of the system's clock have the same time: one that came before this must be further back.
  constexpr std::chrono::milliseconds kTick(50);
  const std::vector<fs::path> files = model_files(options);
  for (const fs::path& file : files)
    if (const auto since = since_change(status_of(file)); since.count() >= 0 && since < kTick)
      std::this_thread::sleep_for(kTick - since);
  std::string state;
  for (const fs::path& file : files)
    state += fmt::format("{} {}\n", file.filename().string(), state_of(status_of(file)));
  return state;
}

std::string cache_identity(const EngineOptions& options, const KvLayout& kv, const DeviceInfo& device,
                           const FileNotes& notes, int numerics) {
  return fmt::format(
      "numerics {}\ndevice {}: {}\nfiles {}\nload {} {} {}\ncache {}: {} layers, {} heads of {}, blocks of {}\n"
      "rank {} of {} in {} stages\n",
      numerics, device.name, device.numerics, hash_files(options, notes), options.load_format, options.dtype,
      options.quantize, kv_type_name(kv.dtype), kv.layers, kv.kv_heads, kv.head_size, kv.block_size,
      options.group ? options.group->rank() : 0, options.ranks(), options.pp);
}

}  // namespace ingot
