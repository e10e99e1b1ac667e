#include "hub/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
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

}  // namespace
}  // namespace ingot::hub
