#pragma once

#include <filesystem>
#include <functional>

namespace ingot::hub {

// An advisory lock (flock) on a file made for it, the kind Hugging Face's own library takes. Freed when the process
// ends, however it ends.
class FileLock {
 public:
  // Waits for it; `waiting` is called once when somebody else has it.
  explicit FileLock(const std::filesystem::path& path, const std::function<void()>& waiting = {});
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace ingot::hub
