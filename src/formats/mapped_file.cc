#include "formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace ingot {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void refuse(const std::string& name, int error) {
  if (error == ENOENT || error == ENOTDIR) throw_error(ErrorKind::io, "{}: no such file", name);
  if (error == EACCES || error == EPERM) throw_error(ErrorKind::io, "{}: no permission to read it", name);
  throw_error(ErrorKind::io, "{}: cannot be read: {}", name, std::strerror(error));
}

// What is mapped now, so that a fault can be told by its file.
class Mappings {
 public:
  void add(std::span<const std::byte> bytes, std::string name) {
    const std::lock_guard lock(mutex_);
    files_[bytes.data()] = {bytes.size(), std::move(name)};
  }
  void remove(const std::byte* begin) {
    const std::lock_guard lock(mutex_);
    files_.erase(begin);
  }
  std::string name_of(const void* address) {  // empty: of none of them
    const std::lock_guard lock(mutex_);
    const auto* byte = static_cast<const std::byte*>(address);
    auto after = files_.upper_bound(byte);
    if (after == files_.begin()) return "";
    const auto& [begin, file] = *--after;
    return static_cast<size_t>(byte - begin) < file.first ? file.second : "";
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::pair<size_t, std::string>> files_;  // by their first byte
};

Mappings& mappings() {
  static Mappings& all = *new Mappings;  // outlives every file
  return all;
}

// A fault of the kernel's comes from a read of a mapping, in the middle of nothing else: whatever a thread may do, it
// may do here. One that another process sent may come at any time, and means what it always does.
void on_lost_page(int number, siginfo_t* info, void*) {
  static std::atomic_flag told;
  const std::string name = info->si_code > 0 ? mappings().name_of(info->si_addr) : "";
  if (name.empty()) {
    std::signal(number, SIG_DFL);
    raise(number);
    return;
  }
  while (told.test_and_set()) pause();  // another thread is at it
  const std::string line =
      fmt::format("ingot: {}: was cut short while it was read, or its disk failed; restore it and start again\n", name);
  pollfd writable{STDERR_FILENO, POLLOUT, 0};
  if (poll(&writable, 1, 1000) > 0) (void)!::write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  Descriptor file;
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  file.fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) refuse(name, errno);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) refuse(name, errno);
  if (S_ISDIR(info.st_mode)) throw_error(ErrorKind::io, "{}: is a directory, a file was expected", name);
  if (!S_ISREG(info.st_mode)) throw_error(ErrorKind::io, "{}: is not a regular file", name);
  if (info.st_size == 0) throw_error(ErrorKind::bad_file, "{}: the file is empty", name);

  const size_t size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) refuse(name, errno);
  MappedFile mapped;
  mapped.name_ = name;
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  mapped.mapped_ = true;
  mappings().add(mapped.bytes_, name);
  return mapped;
}

MappedFile MappedFile::from_bytes(std::string name, std::span<const std::byte> bytes) {
  MappedFile file;
  file.name_ = std::move(name);
  file.owned_.assign(bytes.begin(), bytes.end());
  file.bytes_ = file.owned_;
  if (bytes.empty()) throw_error(ErrorKind::bad_file, "{}: the file is empty", file.name_);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  name_ = std::move(other.name_);
  owned_ = std::move(other.owned_);  // a moved vector keeps its storage, so bytes_ stays valid
  bytes_ = std::exchange(other.bytes_, {});
  mapped_ = std::exchange(other.mapped_, false);
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (mapped_) {
    mappings().remove(bytes_.data());
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  mapped_ = false;
}

bool MappedFile::contains(std::span<const std::byte> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(bytes_.data());
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  return first >= begin && first - begin <= bytes_.size() && part.size() <= bytes_.size() - (first - begin);
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if (mapped_ && contains(part)) drop_mapped_pages(part);
}

void drop_mapped_pages(std::span<const std::byte> part) {
  static const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + part.size()) / page * page;
  // Only advice: a failure costs memory, not correctness.
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void exit_where_files_shrink() {
  struct sigaction action{};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace ingot
