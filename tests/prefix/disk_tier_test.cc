#include "prefix/disk_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "eventually.h"
#include "prefix/rig.h"

namespace ingot::test {
namespace {

using namespace std::chrono_literals;

// Host memory of a few blocks above a folder.
struct Tiers {
  Tiers(const std::string& path, int64_t blocks)
      : host(blocks, 4, true),
        memory(static_cast<size_t>(blocks), std::vector<std::byte>(300)),
        disk(std::make_unique<DiskTier>(
            std::make_unique<BlockFolder>(path, 1 << 30), host,
            [this](int32_t block) { return std::span(memory[static_cast<size_t>(block)]); },
            [this](const std::string& line) { warnings.push_back(line); })) {}

  void put(uint32_t number) {
    const TestBlock block(number);
    const int32_t at = host.reserve(block.content());
    ASSERT_GE(at, 0);
    memory[static_cast<size_t>(at)] = block.payload;
    host.keep(at, false);
    host.release(at);
    disk->wake();
  }
  std::shared_ptr<BlockLookup> look(uint32_t first, uint32_t count) {
    std::vector<BlockHash> hashes;
    std::vector<int32_t> tokens;
    for (uint32_t i = first; i < first + count; ++i) {
      const TestBlock block(i);
      hashes.push_back(block.hash);
      tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
    }
    auto lookup = std::make_shared<BlockLookup>(host, first, hashes, tokens);
    disk->look(lookup);
    for (int i = 0; i < 10000 && !lookup->done(); ++i) disk->wait_for_any(5ms);
    EXPECT_TRUE(lookup->done());
    return lookup;
  }
  void write_all() {
    for (int i = 0; i < 10000 && host.unwritten() > 0; ++i) disk->wait_for_any(5ms);
  }
  bool holds(uint32_t number) {
    const TestBlock block(number);
    const int32_t at = host.hold(block.content());
    if (at < 0) return false;
    EXPECT_EQ(memory[static_cast<size_t>(at)], block.payload);
    host.release(at);
    return true;
  }

  HostTier host;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::string> warnings;
  std::unique_ptr<DiskTier> disk;
};

TEST(DiskTier, WritesWhatHostMemoryHasAndReadsItAgain) {
  const FreshFolder place;
  {
    Tiers tiers(place.path(), 8);
    for (uint32_t i = 0; i < 6; ++i) tiers.put(i);
  }  // the end waits for the writes
  EXPECT_EQ(block_files(place.path()).size(), 6u);
  Tiers tiers(place.path(), 8);
  const auto lookup = tiers.look(0, 10);
  EXPECT_EQ(lookup->read(), 6);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(tiers.holds(i)) << i;
  EXPECT_EQ(tiers.host.unwritten(), 0u) << "they are in files";
  const DiskCounts counts = tiers.disk->counts();
  EXPECT_EQ(counts.read_blocks, 6u);
  EXPECT_EQ(counts.read_bytes, 6 * 300u);
  EXPECT_EQ(counts.damaged, 0u);
}

// Beside streams the thread works in turns; they change nothing but the time it takes.
TEST(DiskTier, StandsBackBesideStreams) {
  const FreshFolder place;
  {
    Tiers tiers(place.path(), 8);
    tiers.disk->stand_back(1);
    for (uint32_t i = 0; i < 6; ++i) tiers.put(i);
    tiers.write_all();
    EXPECT_EQ(tiers.disk->counts().written_blocks, 6u);
  }
  Tiers tiers(place.path(), 8);
  tiers.disk->stand_back(1);
  EXPECT_EQ(tiers.look(0, 6)->read(), 6);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(tiers.holds(i)) << i;
  EXPECT_EQ(tiers.disk->counts().damaged, 0u);
}

TEST(DiskTier, HoldsWhatItFoundUntilTheLookupIsGone) {
  const FreshFolder place;
  Tiers tiers(place.path(), 3);
  for (uint32_t i = 0; i < 3; ++i) tiers.put(i);
  tiers.write_all();
  for (uint32_t i = 10; i < 12; ++i) tiers.put(i);
  tiers.write_all();
  auto lookup = tiers.look(0, 3);
  EXPECT_TRUE(tiers.holds(0));
  EXPECT_EQ(tiers.host.reserve(TestBlock(20).content()), -1) << "all are held";
  lookup.reset();
  int32_t block = -1;  // the thread that looked may be the last to let go
  EXPECT_TRUE(eventually([&] { return (block = tiers.host.reserve(TestBlock(20).content())) >= 0; }));
}

TEST(DiskTier, StopsAtADamagedBlockAndCountsIt) {
  const FreshFolder place;
  {
    Tiers tiers(place.path(), 8);
    for (uint32_t i = 0; i < 4; ++i) tiers.put(i);
  }
  for (const auto& file : block_files(place.path()))
    if (file.filename().string().ends_with("-2"))
      std::fstream(file, std::ios::in | std::ios::out).seekp(150).put('\x11').put('\x22');
  Tiers tiers(place.path(), 8);
  EXPECT_EQ(tiers.look(0, 4)->read(), 2);
  EXPECT_EQ(tiers.disk->counts().damaged, 1u);
  EXPECT_FALSE(tiers.holds(2));
  tiers.put(2);
  tiers.write_all();
  EXPECT_EQ(tiers.look(0, 4)->read(), 1) << "whole again; only the last was not in memory";
}

// What stays in memory is not read from files; those are not the first to go for that.
TEST(DiskTier, FilesOfBlocksThatAreUsedInMemoryDoNotAge) {
  namespace fs = std::filesystem;
  const FreshFolder place;
  Tiers tiers(place.path(), 8);
  for (uint32_t i = 0; i < 4; ++i) tiers.put(i);
  tiers.write_all();
  const auto age = [&] {
    for (const fs::path& file : block_files(place.path())) fs::last_write_time(file, fs::last_write_time(file) - 1h);
  };
  const auto young = [&] {
    int64_t count = 0;
    for (const fs::path& file : block_files(place.path()))
      count += fs::file_time_type::clock::now() - fs::last_write_time(file) < 1min;
    return count;
  };
  const std::vector<BlockHash> hashes{TestBlock(0).hash, TestBlock(1).hash, TestBlock(9).hash};
  age();
  EXPECT_EQ(young(), 0);
  tiers.disk->used(hashes);
  EXPECT_TRUE(eventually([&] { return young() == 2; })) << "one of them is in no file";
  age();
  tiers.disk->used(hashes);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(young(), 0) << "not again so soon";
}

TEST(DiskTier, AFolderThatCannotBeWrittenIsGivenUpWithOneLine) {
  const FreshFolder place;
  Tiers tiers(place.path(), 8);
  tiers.put(0);
  tiers.write_all();
  const std::filesystem::path blocks = std::filesystem::path(place.path()) / "blocks";
  std::filesystem::remove_all(blocks);
  std::ofstream(blocks) << "a file where a folder was";
  for (uint32_t i = 1; i < 8; ++i) tiers.put(i);
  tiers.write_all();
  EXPECT_FALSE(tiers.disk->writing());
  ASSERT_EQ(tiers.warnings.size(), 1u);
  EXPECT_NE(tiers.warnings[0].find("Not a directory"), std::string::npos) << tiers.warnings[0];
  EXPECT_EQ(tiers.warnings[0].find('\n'), std::string::npos);
  EXPECT_TRUE(tiers.holds(7)) << "host memory goes on";
}

}  // namespace
}  // namespace ingot::test
