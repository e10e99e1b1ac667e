#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/digest.h"

namespace ingot::cpu {

// A folder of files of packed weights, which several processes may use at the same time:
//
//   <digest>.packed       appears when it is whole: it is written beside, and renamed
//   unfinished-<digest>   locked (flock) by its writer for as long as that lives
//
// A file that goes away stays readable for whoever has it open or mapped.
class PackedFolder {
 public:
  // Makes the folder where there is none. Throws Error(io) where there is something else, or where others may write.
  PackedFolder(const std::string& path, uint64_t most_bytes);

  std::filesystem::path file_of(const Digest& key) const;
  // It was used now. Nothing happens where this may not be noted.
  static void touch(const std::filesystem::path& file);

  // Writes the file of a key, of `bytes`, by write(descriptor, name), which returns false to give up; files used least
  // recently make room. Does nothing where the file is there, or another process is writing it. Throws Error(io).
  using Write = std::function<bool(int fd, const std::string& name)>;
  void write(const Digest& key, uint64_t bytes, const Write& write) const;

 private:
  void make_room(uint64_t bytes) const;

  std::filesystem::path path_;
  uint64_t most_bytes_;
};

}  // namespace ingot::cpu
