#pragma once

#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "prefix/block_hash.h"

namespace ingot::test {

// A folder's name where there is none yet; it is deleted with this.
class FreshFolder {
 public:
  FreshFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingot-prefix-XXXXXX").string();
    parent_ = mkdtemp(pattern.data());
  }
  ~FreshFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(parent_, ignored);
  }
  FreshFolder(const FreshFolder&) = delete;
  FreshFolder& operator=(const FreshFolder&) = delete;
  std::string path() const { return (parent_ / "cache").string(); }

 private:
  std::filesystem::path parent_;
};

// A block that differs from every other number's.
struct TestBlock {
  explicit TestBlock(uint32_t number, size_t bytes = 300) : tokens{static_cast<int32_t>(number), 2, 3, 4} {
    static const BlockHasher hasher(Digest{}, "test");
    hash = hasher.chain({}, tokens);
    std::mt19937 random(number);
    for (size_t i = 0; i < bytes; ++i) payload.push_back(static_cast<std::byte>(random()));
    position = number;
  }
  BlockContent content() const { return {hash, position, tokens}; }

  std::vector<int32_t> tokens;
  BlockHash hash;
  int64_t position;
  std::vector<std::byte> payload;
};

inline std::vector<std::filesystem::path> block_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder + "/blocks"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

}  // namespace ingot::test
