#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
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

}  // namespace ingot
