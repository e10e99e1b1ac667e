#include "core/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "formats/test_files.h"

namespace ingot {
namespace {

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// Files as the kernel shows them.
class CgroupTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ / path;
    std::filesystem::create_directories(file.parent_path());
    write_file(file, text);
  }
  Cgroups groups() const { return {folder_ / "fs", folder_ / "self"}; }

 private:
  TempDir folder_;
};

TEST_F(CgroupTest, WithoutGroupsThereIsNoLimit) {
  EXPECT_TRUE(std::isinf(cgroup_cpus(groups())));
  EXPECT_EQ(cgroup_memory_left(groups()), kNone);
  put("self", "1:name=systemd:/x\n0::/x\n");
  EXPECT_TRUE(std::isinf(cgroup_cpus(groups())));
}

TEST_F(CgroupTest, Version1HasAFolderAController) {
  put("self", "12:cpuset:/sets\n4:cpu,cpuacct:/a/b\n3:memory:/m\n1:name=systemd:/x\n");
  put("fs/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  put("fs/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(cgroup_cpus(groups())));
  put("fs/cpu/a/cpu.cfs_quota_us", "300000\n");
  put("fs/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(groups()), 3);
  put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_GT(cgroup_memory_left(groups()), uint64_t{1} << 60);
  put("fs/memory/m/memory.limit_in_bytes", "1000\n");
  put("fs/memory/m/memory.usage_in_bytes", "800\n");
  put("fs/memory/m/memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 200\n");
  EXPECT_EQ(cgroup_memory_left(groups()), 500u);
}

TEST_F(CgroupTest, AContainersRootHasItsLimits) {
  put("self", "0::/\n");
  put("fs/cpu.max", "150000 100000\n");
  put("fs/memory.max", "1000\n");
  put("fs/memory.current", "700\n");
  EXPECT_EQ(cgroup_cpus(groups()), 1.5);
  EXPECT_EQ(cgroup_memory_left(groups()), 300u);
  put("fs/memory.current", "1200\n");
  EXPECT_EQ(cgroup_memory_left(groups()), 0u);
}

TEST_F(CgroupTest, TheTightestOfTheGroupsAroundCounts) {
  put("self", "1:name=systemd:/x\n0::/system.slice/ingot.service\n");
  put("fs/system.slice/ingot.service/cpu.max", "max 100000\n");
  put("fs/system.slice/cpu.max", "400000 100000\n");
  put("fs/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpus(groups()), 4);
  put("fs/system.slice/ingot.service/memory.max", "5000\n");
  put("fs/system.slice/ingot.service/memory.current", "1000\n");
  put("fs/system.slice/memory.max", "6000\n");
  put("fs/system.slice/memory.current", "3000\n");
  EXPECT_EQ(cgroup_memory_left(groups()), 3000u);
  put("fs/system.slice/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_left(groups()), 4000u);
}

// A model that was read before is in the cache of files, which its group is charged for.
TEST_F(CgroupTest, CachedFilesMakeRoom) {
  put("self", "0::/\n");
  put("fs/memory.max", "1000\n");
  put("fs/memory.current", "900\n");
  put("fs/memory.stat", "anon 200\nfile 650\nshmem 50\ninactive_file 400\nactive_file 250\n");
  EXPECT_EQ(cgroup_memory_left(groups()), 750u);
  put("fs/memory.stat", "inactive_file 5000\n");  // read a moment later
  EXPECT_EQ(cgroup_memory_left(groups()), 1000u);
}

TEST_F(CgroupTest, APathOfTheHostLeavesTheRoot) {
  put("self", "0::/docker/0123456789ab\n");
  put("fs/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cpus(groups()), 2);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  put("self", "0::/\n");
  for (const char* text : {"", "\n", "max\n", "0 100000\n", "100000\n", "100000 0\n", "-1 100000\n", "x y\n"}) {
    put("fs/cpu.max", text);
    EXPECT_TRUE(std::isinf(cgroup_cpus(groups()))) << text;
  }
}

}  // namespace
}  // namespace ingot
