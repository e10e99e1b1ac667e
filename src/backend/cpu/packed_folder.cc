#include "backend/cpu/packed_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/own_folder.h"
#include "core/throw_errno.h"

namespace ingot::cpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".packed", kUnfinished = "unfinished-";

// A file that is locked for as long as this lives, and goes away with it unless it is renamed before.
class Unfinished {
 public:
  explicit Unfinished(fs::path path) : path_(std::move(path)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (fd_ < 0) return;
    ::unlink(path_.c_str());  // before the lock is gone: nobody else's
    ::close(fd_);
  }

  // False: somebody else has it.
  bool lock() {
    for (;;) {
      fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (fd_ < 0) throw_errno(path_.string(), "cannot be written");
      const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
      if (locked && is_there()) return true;
      const int error = errno;
      ::close(std::exchange(fd_, -1));
      if (locked) continue;  // its writer took it away before we had the lock
      if (error == EWOULDBLOCK) return false;
      errno = error;
      throw_errno(path_.string(), "cannot be locked");
    }
  }
  int fd() const { return fd_; }
  const fs::path& path() const { return path_; }

  void become(const fs::path& name) {
    if (::rename(path_.c_str(), name.c_str()) != 0) throw_errno(name.string(), "cannot be written");
    ::close(std::exchange(fd_, -1));
    const int folder = ::open(name.parent_path().c_str(), O_RDONLY | O_CLOEXEC);
    if (folder < 0) return;
    (void)::fsync(folder);  // so that the name outlives a crash; without it the file is written again
    ::close(folder);
  }

 private:
  bool is_there() const {
    struct stat ours {
    }, there{};
    return ::fstat(fd_, &ours) == 0 && ::stat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
  }

  fs::path path_;
  int fd_ = -1;
};

struct Kept {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

}  // namespace

PackedFolder::PackedFolder(const std::string& path, uint64_t most_bytes) : path_(path), most_bytes_(most_bytes) {
  std::error_code ignored;  // the next line says it
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), ignored);
  own_folder(path_, Others::look);
}

fs::path PackedFolder::file_of(const Digest& key) const { return path_ / fmt::format("{}{}", hex(key), kEnding); }

void PackedFolder::touch(const fs::path& file) { (void)::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }

void PackedFolder::write(const Digest& key, uint64_t bytes, const Write& write) const {
  if (bytes > most_bytes_)
    throw_error(ErrorKind::io, "{}: has room for {}, these weights take {}: see --packed-cache-bytes", path_.string(),
                format_bytes(most_bytes_), format_bytes(bytes));
  const fs::path path = file_of(key);
  Unfinished file(path_ / fmt::format("{}{}", kUnfinished, hex(key)));
  if (!file.lock() || ::access(path.c_str(), F_OK) == 0) return;
  if (::ftruncate(file.fd(), 0) != 0) throw_errno(file.path().string(), "cannot be written");
  make_room(bytes);
  if (write(file.fd(), file.path().string())) file.become(path);
}

void PackedFolder::make_room(uint64_t bytes) const {
  std::vector<Kept> kept;
  uint64_t sum = bytes;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    std::error_code gone;  // deleted meanwhile: not ours to mind
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(gone)) continue;
    const Kept file{entry.path(), entry.file_size(gone), entry.last_write_time(gone)};
    if (gone) continue;
    if (name.ends_with(kEnding)) {
      kept.push_back(file);
      sum += file.bytes;
    } else if (name.starts_with(kUnfinished)) {
      // Of a writer that is gone: this takes it away. One that lives is at most as large as it says.
      if (!Unfinished(file.path).lock()) sum += file.bytes;
    }
  }
  std::ranges::sort(kept, {}, &Kept::used);
  for (const Kept& file : kept) {
    if (sum <= most_bytes_) return;
    if (::unlink(file.path.c_str()) == 0 || errno == ENOENT) sum -= file.bytes;
  }
}

}  // namespace ingot::cpu
