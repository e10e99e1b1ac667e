#pragma once

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/packed_file.h"
#include "backend/cpu/packed_folder.h"
#include "backend/packed_cache.h"
#include "core/digest.h"

namespace ingot::cpu {

// The matrices of one model as they were packed before, in the order in which they are loaded. What is not there is
// packed as ever, and when all are loaded they are written, beside whatever the device does then. Faults cost a line
// and the time of packing, never the load.
class PackedCache {
 public:
  explicit PackedCache(PackedCacheOptions options);
  // Waits for the file, some seconds; what is not written by then is given up.
  ~PackedCache();

  std::optional<PackedMatrix> find(const MatrixSpec& spec, Isa isa, ThreadPool& pool);
  void add(const MatrixSpec& spec, const PackedMatrix& matrix);  // that was packed
  void end_load();

  uint64_t found_bytes() const { return found_bytes_; }

 private:
  void open_file();
  void give_up_file(const std::string& why);
  void write();

  PackedCacheOptions options_;
  Digest key_{};
  std::optional<PackedFolder> folder_;  // none: it cannot be used
  std::unique_ptr<PackedFile> file_;
  std::vector<PackedPart> parts_;  // all there are so far
  bool complete_ = true;           // all of them were found
  uint64_t found_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;  // the device is going away
  std::atomic<bool> stop_{false};
  std::future<void> writer_;
};

}  // namespace ingot::cpu
