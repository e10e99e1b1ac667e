#include "prefix/block_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/error.h"
#include "prefix/rig.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;
using Found = BlockFolder::Found;

constexpr uint64_t kMuch = 1 << 30;

std::string slurp_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill_file(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string why_not(const std::string& path) {
  try {
    BlockFolder folder(path, kMuch);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    return error.what();
  }
  return "";
}

TEST(BlockFolder, KeepsBlocksForWhoComesLater) {
  const FreshFolder place;
  const TestBlock a(1), b(2);
  std::vector<std::byte> bytes(a.payload.size());
  Digest secret;
  {
    BlockFolder folder(place.path(), kMuch);
    EXPECT_EQ(folder.read(a.content(), bytes), Found::no);
    folder.write(a.content(), a.payload);
    folder.write(a.content(), a.payload);
    EXPECT_EQ(folder.read(a.content(), bytes), Found::yes);
    folder.set_note("weights", "abc");
    secret = folder.secret();
  }
  BlockFolder folder(place.path(), kMuch);
  EXPECT_EQ(folder.secret(), secret);
  EXPECT_EQ(folder.note("weights"), "abc");
  EXPECT_EQ(folder.note("other"), "");
  EXPECT_EQ(folder.read(a.content(), bytes), Found::yes);
  EXPECT_EQ(bytes, a.payload);
  EXPECT_EQ(folder.read(b.content(), bytes), Found::no);
  std::vector<std::byte> longer(a.payload.size() + 1);
  EXPECT_EQ(folder.read(a.content(), longer), Found::damaged) << "a block of another size";
}

TEST(BlockFolder, IsItsOwnersAlone) {
  const FreshFolder place;
  BlockFolder folder(place.path(), kMuch);
  const TestBlock a(1);
  folder.write(a.content(), a.payload);
  std::vector<fs::path> all = {place.path()};
  for (const auto& entry : fs::recursive_directory_iterator(place.path())) all.push_back(entry.path());
  EXPECT_GE(all.size(), 6u);
  for (const fs::path& path : all) {
    struct stat status{};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077, 0u) << path;
  }
}

// Every byte matters: a file with one of them changed, or cut short, or longer, is not taken, and is gone afterwards.
TEST(BlockFolder, FindsADamagedFile) {
  const FreshFolder place;
  BlockFolder folder(place.path(), kMuch);
  const TestBlock a(1, 64);
  std::vector<std::byte> bytes(a.payload.size());
  folder.write(a.content(), a.payload);
  const fs::path file = block_files(place.path()).at(0);
  const std::string whole = slurp_file(file);
  std::vector<std::string> damaged = {"", whole + "x"};
  for (size_t i = 0; i < whole.size(); ++i) {
    damaged.push_back(whole.substr(0, i));
    damaged.push_back(whole);
    damaged.back()[i] ^= static_cast<char>(1 << (i % 8));
  }
  for (const std::string& other : damaged) {
    spill_file(file, other);
    EXPECT_EQ(folder.read(a.content(), bytes), Found::damaged);
    EXPECT_EQ(folder.read(a.content(), bytes), Found::no) << "deleted";
  }
  spill_file(file, whole);
  EXPECT_EQ(folder.read(a.content(), bytes), Found::yes);
}

// A hash alone is no proof.
TEST(BlockFolder, ComparesTheTokens) {
  const FreshFolder place;
  BlockFolder folder(place.path(), kMuch);
  const TestBlock a(1);
  folder.write(a.content(), a.payload);
  TestBlock other(1);
  other.tokens[3] = 99;
  std::vector<std::byte> bytes(a.payload.size());
  EXPECT_EQ(folder.read(other.content(), bytes), Found::damaged);
}

TEST(BlockFolder, LeavesOthersFoldersAlone) {
  const FreshFolder place;
  const fs::path path = place.path();
  fs::create_directory(path);
  fs::permissions(path, fs::perms::owner_all);
  spill_file(path / "thesis.txt", "mine");
  EXPECT_NE(why_not(path).find("has other files in it"), std::string::npos) << why_not(path);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 1) << "something was written";
  EXPECT_EQ(slurp_file(path / "thesis.txt"), "mine");
  fs::remove(path / "thesis.txt");
  fs::permissions(path, fs::perms::owner_all | fs::perms::others_read);
  EXPECT_NE(why_not(path).find("chmod 700"), std::string::npos) << why_not(path);
  fs::permissions(path, fs::perms::owner_all);
  spill_file(path / "ingot-prefix", "ingot prefix cache, format 2\n");
  EXPECT_NE(why_not(path).find("format 2"), std::string::npos) << why_not(path);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 1) << "something was written";
  fs::remove(path / "ingot-prefix");
  EXPECT_EQ(why_not(path), "");
  EXPECT_NE(why_not(path / "ingot-prefix").find("is not a folder"), std::string::npos);
  EXPECT_NE(why_not("/proc/nothing"), "");
}

TEST(BlockFolder, KeepsWhatWasUsedLast) {
  const FreshFolder place;
  constexpr size_t kBytes = 1000;
  constexpr uint64_t kFile = kBytes + 24 + 32 + 16 + 32;
  BlockFolder folder(place.path(), 10 * kFile);
  std::vector<std::byte> bytes(kBytes);
  const auto has = [&](uint32_t i) {
    return folder.read(TestBlock(i, kBytes).content(), bytes) == BlockFolder::Found::yes;
  };
  const auto age_all = [&] {  // by an hour
    for (const fs::path& file : block_files(place.path()))
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  };
  for (uint32_t i = 0; i < 9; ++i) folder.write(TestBlock(i, kBytes).content(), TestBlock(i, kBytes).payload);
  age_all();
  EXPECT_TRUE(has(3));  // used now
  for (uint32_t i = 9; i < 11; ++i) folder.write(TestBlock(i, kBytes).content(), TestBlock(i, kBytes).payload);
  EXPECT_EQ(block_files(place.path()).size(), 9u);
  EXPECT_LE(folder.bytes(), 9 * kFile);
  for (const uint32_t kept : {0, 1, 2, 3, 4, 5, 6, 9, 10}) EXPECT_TRUE(has(kept)) << kept;
  // Of those that were used together the end of a sequence goes first: 8, then 7.
  EXPECT_FALSE(has(7));
  EXPECT_FALSE(has(8));
}

TEST(BlockFolder, CountsWhatOthersWroteToo) {
  const FreshFolder place;
  constexpr size_t kBytes = 1000;
  BlockFolder one(place.path(), 20'000), two(place.path(), 20'000);
  for (uint32_t i = 0; i < 40; ++i) {
    one.write(TestBlock(2 * i, kBytes).content(), TestBlock(2 * i, kBytes).payload);
    two.write(TestBlock(2 * i + 1, kBytes).content(), TestBlock(2 * i + 1, kBytes).payload);
  }
  EXPECT_LE(block_files(place.path()).size(), 24u);  // 18 fit; each may be an eighth behind
  std::vector<std::byte> bytes(kBytes);
  EXPECT_EQ(two.read(TestBlock(0, kBytes).content(), bytes), Found::yes) << "the other's";
}

TEST(BlockFolder, SweepsUpAfterACrash) {
  const FreshFolder place;
  BlockFolder folder(place.path(), kMuch);
  fs::create_directory(fs::path(place.path()) / "blocks/ab");
  const fs::path old = fs::path(place.path()) / "blocks/ab/unfinished-1-1";
  const fs::path fresh = fs::path(place.path()) / "blocks/ab/unfinished-1-2";
  for (const fs::path& path : {old, fresh}) spill_file(path, "half of a bl");
  fs::last_write_time(old, fs::last_write_time(old) - std::chrono::minutes(11));
  folder.trim();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "somebody may be writing it";
}

}  // namespace
}  // namespace ingot::test
