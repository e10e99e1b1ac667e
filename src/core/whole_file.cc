#include "core/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace ingot {

void write_whole(const std::filesystem::path& path, const std::filesystem::path& beside, Pieces pieces,
                 const Rest& rest) {
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool good = file >= 0;
  int reason = errno;
  for (std::span<const std::byte> left : pieces)
    while (good && !left.empty()) {
      const ssize_t written = ::write(file, left.data(), rest ? std::min(left.size(), kRestBytes) : left.size());
      if (written < 0 && errno == EINTR) continue;
      good = written > 0;
      reason = errno;
      if (good) left = left.subspan(static_cast<size_t>(written));
      if (rest) rest();
    }
  if (file >= 0 && ::close(file) != 0 && good) {
    good = false;
    reason = errno;
  }
  if (good && ::rename(beside.c_str(), path.c_str()) == 0) return;
  if (good) reason = errno;
  ::unlink(beside.c_str());
  throw_error(ErrorKind::io, "{}: cannot be written: {}", path.string(), std::strerror(reason));
}

}  // namespace ingot
