// Faults that ASan, UBSan and TSan must find in kernels, each beside a clean twin. Built in the sanitizer presets only.
#include <gtest/gtest.h>

#include "harness.h"

namespace {
// TSan calls __tsan_on_report for every report. Its exit status would be a failure of the test that expects the report.
int reports = 0;
}  // namespace
extern "C" void __tsan_on_report(void*) { ++reports; }
extern "C" const char* __tsan_default_options() { return "exitcode=0"; }

namespace softmetal_test {
namespace {

const char* kIndices =
    "kernel void past_buffer(device float* o, constant uint& at) { o[at] = 1; }\n"
    "kernel void past_array(device float* o, constant uint& at) { threadgroup float t[8]; t[at] = 1; o[0] = t[at]; }\n"
    "kernel void past_dynamic(device float* o, constant uint& at, threadgroup float* t [[threadgroup(0)]]) { t[at] = "
    "1; o[0] = t[at]; "
    "}\n";

class Sanitizers : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  Gpu gpu;
  std::string run(const char* name, uint32_t at) {
    gpu.compile(kIndices);
    auto o = gpu.empty(8 * 4), index = gpu.buffer(std::vector<uint32_t>{at});
    const size_t dynamic = std::string(name) == "past_dynamic" ? 32 : 0;
    return gpu.run(name, {{o.get(), index.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1), false, dynamic});
  }
};

#if defined(SOFTMETAL_TEST_ASAN)

TEST_F(Sanitizers, IndexPastABuffer) {
  EXPECT_EQ(run("past_buffer", 7), "");
  EXPECT_DEATH(run("past_buffer", 8), "AddressSanitizer: heap-buffer-overflow");
}
TEST_F(Sanitizers, IndexPastAThreadgroupArray) {
  EXPECT_EQ(run("past_array", 7), "");
  EXPECT_DEATH(run("past_array", 8), "test.metal:2.*index 8 out of bounds|AddressSanitizer");
}
TEST_F(Sanitizers, IndexPastDynamicThreadgroupMemory) {
  EXPECT_EQ(run("past_dynamic", 7), "");
  EXPECT_DEATH(run("past_dynamic", 8), "AddressSanitizer: use-after-poison");
}

#endif
#if defined(SOFTMETAL_TEST_TSAN)

const char* kExchange =
    "kernel void k(device float* o, uint i [[thread_index_in_threadgroup]]) {\n"
    "  threadgroup float t[64];\n"
    "  t[i] = i;\n"
    "  BARRIER;\n"
    "  o[i] = t[63 - i];\n"
    "}\n";

int races(const char* barrier) {
  const int before = reports;
  Gpu gpu;
  gpu.compile(kExchange, {{"BARRIER", barrier}});
  auto o = gpu.empty(64 * 4);
  EXPECT_EQ(gpu.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(64, 1, 1)}), "");
  return reports - before;
}

TEST_F(Sanitizers, RaceInAThreadgroup) {
  EXPECT_EQ(races("threadgroup_barrier(mem_flags::mem_threadgroup)"), 0);
  EXPECT_GT(races("threadgroup_barrier(mem_flags::mem_none)"), 0);
  EXPECT_GT(races(""), 0);
}

#endif

}  // namespace
}  // namespace softmetal_test
