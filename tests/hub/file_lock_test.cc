#include "hub/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

namespace ingot::hub {
namespace {

namespace fs = std::filesystem;

// The number the next opened file gets: the lowest that is free.
int next_descriptor() {
  const int descriptor = dup(0);
  close(descriptor);
  return descriptor;
}

TEST(FileLock, GivesItsDescriptorBack) {
  const fs::path path = fs::temp_directory_path() / ("ingot_lock_" + std::to_string(getpid()));
  const int before = next_descriptor();
  for (int i = 0; i < 3; ++i) {
    const FileLock lock(path);
    EXPECT_NE(next_descriptor(), before);
  }
  EXPECT_EQ(next_descriptor(), before);
  fs::remove(path);
}

// The file may be removed by whoever held it; then it is made anew, and the old one is closed.
TEST(FileLock, LooksForTheFileAgainWhenItWasRemoved) {
  const fs::path path = fs::temp_directory_path() / ("ingot_lock_again_" + std::to_string(getpid()));
  const auto open_descriptors = [] {
    int count = 0;
    for (int d = 0; d < 256; ++d) count += fcntl(d, F_GETFD) != -1;
    return count;
  };
  const int before = open_descriptors();
  auto first = std::make_unique<FileLock>(path);
  {
    const FileLock second(path, [&] {
      fs::remove(path);
      first.reset();
    });
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(open_descriptors(), before + 1);
  }
  EXPECT_EQ(open_descriptors(), before);
  fs::remove(path);
}

}  // namespace
}  // namespace ingot::hub
