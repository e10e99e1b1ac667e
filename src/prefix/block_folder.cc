#include "prefix/block_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/own_folder.h"
#include "core/throw_errno.h"
#include "core/whole_file.h"
#include "prefix/block_file.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "ingot prefix cache, format 1\n";
constexpr std::string_view kUnfinished = "unfinished-";  // how names of files begin that are being written
constexpr std::chrono::minutes kForgotten{10};           // such a file is older than that: its writer is gone
constexpr std::chrono::minutes kAlike{1};                // files used within that are as good as used together

class File {
 public:
  File(const fs::path& path, int flags, mode_t mode = 0) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  bool read(std::span<std::byte> bytes, const Rest& rest = {}) const {
    while (!bytes.empty()) {
      const ssize_t n = ::read(fd_, bytes.data(), rest ? std::min(bytes.size(), kRestBytes) : bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
      if (rest) rest();
    }
    return true;
  }

 private:
  int fd_;
};

// Where a file is written before it has its name.
fs::path beside(const fs::path& path) {
  static std::atomic<uint64_t> count{0};
  return path.parent_path() / fmt::format("{}{}-{}", kUnfinished, ::getpid(), ++count);
}

std::string read_text(const fs::path& path) {
  const File file(path, O_RDONLY);
  std::string text;
  char buffer[256];
  while (file && text.size() < 4096) {
    const ssize_t n = ::read(file.fd(), buffer, sizeof(buffer));
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

std::span<const std::byte> bytes_in(std::string_view text) { return std::as_bytes(std::span(text)); }

bool is_empty_but_for_locks(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename(); name != "lock" && !name.starts_with(kUnfinished))
      return false;
  return true;
}

struct Kept {
  fs::path path;
  uint64_t bytes = 0;
  std::pair<int64_t, int64_t> worth;  // when it was used last, and how near it is to the beginning
};

// The number behind the last '-' of a name: the file's place in its sequence.
int64_t position_in(const std::string& name) {
  const size_t dash = name.rfind('-');
  return dash == std::string::npos ? 0 : std::strtoll(name.c_str() + dash + 1, nullptr, 10);
}

}  // namespace

BlockFolder::BlockFolder(const std::string& path, uint64_t most_bytes) : path_(path), most_bytes_(most_bytes) {
  own_folder(path_, Others::nothing);
  // The marker is the first file of a folder, so whoever sees another sees it too.
  const fs::path marker = path_ / "ingot-prefix", secret = path_ / "secret";
  const bool empty = is_empty_but_for_locks(path_);
  const std::string format = read_text(marker);
  if (format.empty() && !empty)
    throw_error(ErrorKind::io, "{}: has other files in it: name an empty folder or a new one", path);
  if (!format.empty() && format != kFormat)
    throw_error(ErrorKind::io, "{}: was made by another version ({}): name another folder, or delete it", path,
                format.substr(0, format.find('\n')));
  const File lock(path_ / "lock", O_RDWR | O_CREAT, 0600);
  if (!lock || ::flock(lock.fd(), LOCK_EX) != 0) throw_errno(path_.string(), "cannot be locked");
  if (read_text(marker).empty()) write_whole(marker, beside(marker), {bytes_in(kFormat)});
  if (!File(secret, O_RDONLY).read(secret_)) {
    secret_ = random_secret();
    write_whole(secret, beside(secret), {secret_});
  }
  if (::mkdir((path_ / "blocks").c_str(), 0700) != 0 && errno != EEXIST) throw_errno(path_.string(), "cannot be written");
}

fs::path BlockFolder::file_of(const BlockContent& content) const {
  const std::string name = hex(content.hash.bytes);
  return path_ / "blocks" / name.substr(0, 2) / fmt::format("{}-{}", name.substr(2), content.position);
}

BlockFolder::Found BlockFolder::read(const BlockContent& content, std::span<std::byte> payload) {
  const fs::path path = file_of(content);
  const File file(path, O_RDONLY);
  if (!file) return Found::no;
  if (!read_block_file([&](std::span<std::byte> bytes) { return file.read(bytes, rest_); }, content, payload, rest_)) {
    ::unlink(path.c_str());
    return Found::damaged;
  }
  ::futimens(file.fd(), nullptr);  // used now
  return Found::yes;
}

bool BlockFolder::touch(const BlockContent& content) {
  return ::utimensat(AT_FDCWD, file_of(content).c_str(), nullptr, 0) == 0;
}

void BlockFolder::write(const BlockContent& content, std::span<const std::byte> payload) {
  const fs::path path = file_of(content);
  if (touch(content)) return;
  if (::mkdir(path.parent_path().c_str(), 0700) != 0 && errno != EEXIST) throw_errno(path.string(), "cannot be written");
  const std::vector<std::byte> head = block_file_head(content, payload.size());
  const Digest check = block_file_check(head, payload, rest_);
  write_whole(path, beside(path), {head, payload, check}, rest_);
  const uint64_t bytes = head.size() + payload.size() + check.size();
  bytes_ += bytes;
  untrimmed_bytes_ += bytes;
  // Others write too: look again from time to time.
  if (bytes_ > most_bytes_ || untrimmed_bytes_ > most_bytes_ / 8) trim();
}

void BlockFolder::trim() {
  untrimmed_bytes_ = 0;
  const File lock(path_ / "lock", O_RDWR | O_CREAT, 0600);
  if (!lock || ::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    bytes_ = std::min(bytes_, most_bytes_);  // somebody else is at it
    return;
  }
  const auto now = fs::file_time_type::clock::now();
  std::vector<Kept> kept;
  uint64_t sum = 0;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(path_ / "blocks", error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code gone;  // deleted meanwhile: not ours to mind
    if (rest_) rest_();
    if (!it->is_regular_file(gone)) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    const uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    const std::string name = it->path().filename().string();
    if (name.starts_with(kUnfinished)) {
      if (now - used > kForgotten) ::unlink(it->path().c_str());
      continue;
    }
    const int64_t age = (now - used) / kAlike;
    kept.push_back({it->path(), bytes, {-age, -position_in(name)}});
    sum += bytes;
  }
  if (sum > most_bytes_) {
    std::ranges::sort(kept, {}, &Kept::worth);
    for (const Kept& file : kept) {
      if (sum <= most_bytes_ - most_bytes_ / 10) break;
      if (::unlink(file.path.c_str()) == 0) sum -= file.bytes;
      if (rest_) rest_();
    }
  }
  bytes_ = sum;
}

std::string BlockFolder::note(const std::string& name) const { return read_text(path_ / ("note-" + name)); }

void BlockFolder::set_note(const std::string& name, std::string_view text) const {
  const fs::path path = path_ / ("note-" + name);
  write_whole(path, beside(path), {bytes_in(text)});
}

}  // namespace ingot
