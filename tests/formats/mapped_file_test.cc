#include "formats/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "formats/test_files.h"

namespace ingot {
namespace {

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const TempDir dir;
  write_file(dir / "a.bin", "hello");
  MappedFile file = MappedFile::open(dir / "a.bin");
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[1]), 'e');
  const std::byte* before = file.bytes().data();
  const MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), before);
  EXPECT_TRUE(file.bytes().empty());  // NOLINT: a moved-from file is empty
}

TEST(MappedFile, MovingBytesInMemoryKeepsThem) {
  MappedFile file = MappedFile::from_bytes("x", as_bytes("hello"));
  const MappedFile moved = std::move(file);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
}

TEST(MappedFile, SaysWhyAFileCannotBeRead) {
  const TempDir dir;
  const auto open = [](const std::filesystem::path& path) { return [path] { MappedFile::open(path); }; };
  expect_error(ErrorKind::io, "missing.gguf: no such file", open(dir / "missing.gguf"));
  expect_error(ErrorKind::io, "is a directory", open(dir.path()));
  write_file(dir / "empty.gguf", "");
  expect_error(ErrorKind::bad_file, "empty.gguf: the file is empty", open(dir / "empty.gguf"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::io, "is not a regular file", open(dir / "pipe"));
  write_file(dir / "locked", "x");
  std::filesystem::permissions(dir / "locked", std::filesystem::perms::none);
  if (::geteuid() != 0) expect_error(ErrorKind::io, "no permission", open(dir / "locked"));
}

// Resident pages of this process that map `path`, in bytes.
size_t resident(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find(' ') > 10) inside = line.find(path) != std::string::npos;
    if (inside && line.starts_with("Rss:")) return std::stoul(line.substr(4)) * 1024;
  }
  return 0;
}

TEST(MappedFile, DropsPagesAndReadsThemAgain) {
  if (!std::filesystem::exists("/proc/self/smaps")) GTEST_SKIP();
  const TempDir dir;
  const std::string path = (dir / "big.bin").string();
  write_file(path, std::string(4 << 20, 'x'));
  const MappedFile file = MappedFile::open(path);
  size_t sum = 0;
  for (std::byte b : file.bytes()) sum += static_cast<size_t>(b);
  EXPECT_EQ(sum, size_t{'x'} * (4 << 20));
  EXPECT_GE(resident(path), size_t{4} << 20);
  file.drop_pages(file.bytes().subspan(1));  // not page-aligned: the first page stays
  EXPECT_LE(resident(path), size_t{64} << 10);
  EXPECT_EQ(static_cast<char>(file.bytes()[3 << 20]), 'x');
  file.drop_pages(as_bytes("not part of the file"));
}

TEST(MappedFileDeathTest, TellsWhichFileWasCutShort) {
  const TempDir dir;
  write_file(dir / "other.gguf", std::string(8192, 'y'));
  write_file(dir / "model.gguf", std::string(8192, 'x'));
  const auto read_what_is_gone = [&] {
    exit_where_files_shrink();
    const MappedFile other = MappedFile::open(dir / "other.gguf"), file = MappedFile::open(dir / "model.gguf");
    std::filesystem::resize_file(dir / "model.gguf", 10);
    const volatile std::byte* last = &file.bytes().back();
    std::exit(static_cast<char>(*last) == 'x' ? 2 : 3);
  };
  EXPECT_EXIT(read_what_is_gone(), ::testing::ExitedWithCode(1), "^ingot: .*/model.gguf: was cut short");
}

TEST(MappedFileDeathTest, LeavesOtherFaultsAlone) {
  const auto get_signal = [] {
    exit_where_files_shrink();
    raise(SIGBUS);
  };
  EXPECT_EXIT(get_signal(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace ingot
