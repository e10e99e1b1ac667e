#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "hub/cache.h"

namespace ingot::hub {
namespace {

// Somebody may have removed the file between our open and our lock: then the lock is on nothing.
bool is_still_there(int descriptor, const std::filesystem::path& path) {
  struct stat ours{};
  struct stat there{};
  return fstat(descriptor, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waiting) {
  bool told = false;
  while (true) {
    make_folder(path.parent_path());
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (descriptor_ < 0) {
      if (errno == ENOENT) continue;  // the folder went away in between
      throw_error(ErrorKind::io, "{}: cannot be opened: {}; may this user write there?", path.string(),
                  std::strerror(errno));
    }
    int result = flock(descriptor_, LOCK_EX | LOCK_NB);
    if (result != 0 && errno == EWOULDBLOCK) {
      if (waiting && !told) waiting();
      told = true;
      do {
        result = flock(descriptor_, LOCK_EX);
      } while (result != 0 && errno == EINTR);
    }
    if (result == 0 && is_still_there(descriptor_, path)) return;
    const int error = errno;
    close(descriptor_);
    descriptor_ = -1;
    if (result != 0) throw_error(ErrorKind::io, "{}: cannot be locked: {}", path.string(), std::strerror(error));
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace ingot::hub
