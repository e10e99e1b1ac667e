#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ingot {

// A whole file, read-only, memory-mapped; or bytes held in memory under a name, for tests and fuzzers. Moving it keeps
// the bytes where they are. A file that another process shortens while it is mapped faults (SIGBUS): model files are
// not edited in place, and exit_where_files_shrink() says which one was.
class MappedFile {
 public:
  // Throws io when the file is missing, not a regular file or not readable, bad_file when it is empty.
  static MappedFile open(const std::filesystem::path& path);
  static MappedFile from_bytes(std::string name, std::span<const std::byte> bytes);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }  // the path, for errors

  // Gives back the memory of whole pages inside `part` (of this file); reading them again reads the file again.
  void drop_pages(std::span<const std::byte> part) const;
  bool contains(std::span<const std::byte> part) const;

 private:
  void unmap();

  std::string name_;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> owned_;  // from_bytes only
  bool mapped_ = false;
};

// The same for any memory that is mapped from a file: whole pages inside `part` are read again when they are needed.
void drop_mapped_pages(std::span<const std::byte> part);

// From now on the process ends with status 1 and a line on stderr that names the file, instead of a crash, where the
// bytes of a mapped file are gone when they are read. For programs: it takes SIGBUS for the whole process.
void exit_where_files_shrink();

}  // namespace ingot
