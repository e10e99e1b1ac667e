#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ingot::hub {

// How the hub names a file's content: the SHA-256 of a large file (64 digits), git's blob SHA-1 of a small one (40).
bool is_content_hash(std::string_view text);

// Computes that name while the bytes come in.
class FileHash {
 public:
  // `expected`: a content hash, which decides the kind; `size`: of the whole file in bytes (git hashes it too).
  FileHash(std::string_view expected, uint64_t size);
  ~FileHash();
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;

  void restart();
  void update(const void* data, size_t bytes);
  std::string finish();  // lower-case digits; restart() before the next use

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  bool git_;
  uint64_t size_;
};

}  // namespace ingot::hub
