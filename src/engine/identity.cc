#include "engine/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
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

// Whoever changes a file changes one of these: the time of the last change cannot be set.
std::string name_of_state(const std::vector<fs::path>& files) {
  std::string state;
  for (const fs::path& file : files) {
    const struct stat s = status_of(file);
#if defined(__APPLE__)
    const auto changed = s.st_ctimespec, modified = s.st_mtimespec;
#else
    const auto changed = s.st_ctim, modified = s.st_mtim;
#endif
    state += fmt::format("{} {} {} {} {}.{} {}.{}\n", fs::absolute(file).string(), s.st_dev, s.st_ino, s.st_size,
                         modified.tv_sec, modified.tv_nsec, changed.tv_sec, changed.tv_nsec);
  }
  return hex(sha256({std::as_bytes(std::span(state))}));
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
