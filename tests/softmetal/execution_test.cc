// Threads, simdgroups, barriers, grids and memory, against plain C++; each in strict and in fast mode, and in shuffled
// orders.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness.h"

namespace softmetal_test {
namespace {

struct Way {
  softmetal::Mode mode;
  uint64_t seed;
};

std::string name_of(const testing::TestParamInfo<Way>& info) {
  const char* names[] = {"strict", "fast", "count"};
  return names[static_cast<int>(info.param.mode)] + std::to_string(info.param.seed);
}

class Execution : public testing::TestWithParam<Way> {
 protected:
  Gpu gpu{GetParam().mode, GetParam().seed};
};
INSTANTIATE_TEST_SUITE_P(Ways, Execution,
                         testing::Values(Way{softmetal::Mode::strict, 0}, Way{softmetal::Mode::strict, 1},
                                         Way{softmetal::Mode::strict, 2}, Way{softmetal::Mode::fast, 0},
                                         Way{softmetal::Mode::count, 0}),
                         name_of);

TEST_P(Execution, PositionsInAThreeDimensionalGrid) {
  gpu.compile(R"(
kernel void k(device uint* o [[buffer(0)]], uint3 g [[thread_position_in_grid]], uint3 n [[threads_per_grid]],
              ushort3 t [[thread_position_in_threadgroup]], uint3 tg [[threadgroup_position_in_grid]],
              uint3 size [[threads_per_threadgroup]], uint3 nominal [[dispatch_threads_per_threadgroup]],
              uint index [[thread_index_in_threadgroup]], uint3 groups [[threadgroups_per_grid]]) {
  uint at = (g.z * n.y + g.y) * n.x + g.x;
  bool ok = all(tg * nominal + uint3(t) == g) && index == (t.z * size.y + t.y) * size.x + t.x && all(groups * nominal >= n);
  o[at] = ok ? at + size.x * 1000 : 0;
})");
  // 10 x 3 x 5 threads in groups of 4 x 2 x 2: the last ones are smaller on every side.
  auto o = gpu.empty(150 * 4);
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(10, 3, 5), MTL::Size(4, 2, 2), true}), "");
  const auto y = read<uint32_t>(o.get());
  for (uint32_t i = 0; i < 150; ++i) EXPECT_EQ(y[i], i + (i % 10 < 8 ? 4000u : 2000u)) << i;
}

TEST_P(Execution, SimdgroupOperations) {
  gpu.compile(R"(
kernel void k(device float* o [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]], uint n [[threads_per_grid]]) {
  float v = x[i];
  o[0 * n + i] = simd_sum(v);
  o[1 * n + i] = simd_max(v);
  o[2 * n + i] = simd_min(v);
  o[3 * n + i] = simd_shuffle(v, ushort(31 - lane));
  o[4 * n + i] = simd_shuffle_xor(v, 5);
  o[5 * n + i] = simd_shuffle_down(v, 3);
  o[6 * n + i] = simd_shuffle_up(v, 3);
  o[7 * n + i] = simd_broadcast(v, 7);
  o[8 * n + i] = simd_broadcast_first(v);
  o[9 * n + i] = simd_prefix_inclusive_sum(v);
  o[10 * n + i] = simd_prefix_exclusive_sum(v);
  o[11 * n + i] = float(popcount(uint(ulong(simd_ballot(v > 10)))));
  o[12 * n + i] = simd_any(v > 30) + 2 * simd_all(v > -1);
  o[13 * n + i] = float(simd_or(uint(lane)) + simd_and(uint(lane | 64)) + simd_xor(uint(lane)));
  o[14 * n + i] = simd_shuffle_rotate_down(v, 4);
  o[15 * n + i] = simd_shuffle_and_fill_up(v, -v, 2);
  o[16 * n + i] = quad_sum(v);
  o[17 * n + i] = quad_shuffle_xor(v, 1);
  o[18 * n + i] = float(simd_sum(half(v)));
  o[19 * n + i] = simd_sum(int(v));
  float2 two = simd_sum(float2(v, 1)); o[20 * n + i] = two.x + two.y;
  o[21 * n + i] = float(simd_sum(uint(v)) + simd_max(uint(v)) * 1000 + simd_min(uint(v) + 3) * 100000);
})");
  constexpr int n = 64;
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>((i * 7) % 32);
  auto in = gpu.buffer(x);
  auto out = gpu.empty(22 * n * 4);
  ASSERT_EQ(gpu.run("k", {{out.get(), in.get()}, MTL::Size(1, 1, 1), MTL::Size(n, 1, 1)}), "");
  const auto y = read<float>(out.get());
  for (int i = 0; i < n; ++i) {
    const float* g = x.data() + i / 32 * 32;
    const int l = i % 32;
    float prefix = 0;
    for (int k = 0; k < l; ++k) prefix += g[k];
    const float quad = g[l / 4 * 4] + g[l / 4 * 4 + 1] + g[l / 4 * 4 + 2] + g[l / 4 * 4 + 3];
    const float want[] = {496,
                          31,
                          0,
                          g[31 - l],
                          g[l ^ 5],
                          l + 3 < 32 ? g[l + 3] : g[l],
                          l >= 3 ? g[l - 3] : g[l],
                          g[7],
                          g[0],
                          prefix + g[l],
                          prefix,
                          21,
                          3,
                          31 + 64,
                          g[(l + 4) % 32],
                          l >= 2 ? g[l - 2] : -g[(l + 30) % 32],
                          quad,
                          g[l ^ 1],
                          496,
                          496,
                          528,
                          496 + 31000 + 300000};
    for (int k = 0; k < 22; ++k)
      EXPECT_EQ(y[static_cast<size_t>(k * n + i)], want[k]) << "operation " << k << ", lane " << i;
  }
}

TEST_P(Execution, OnlyActiveLanesTakePart) {
  gpu.compile(R"(
kernel void k(device float* o [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  float part = -1;
  if (lane < 8) part = simd_sum(1.0f); else if (lane < 20) part = simd_sum(2.0f);
  if (lane >= 28) return;
  o[lane] = part + 100 * simd_sum(1.0f);
})");
  auto o = gpu.empty(32 * 4);
  ASSERT_EQ(gpu.run("k", {{o.get()}}), "");
  const auto y = read<float>(o.get());
  for (size_t i = 0; i < 28; ++i) EXPECT_EQ(y[i], 2800 + (i < 8 ? 8 : i < 20 ? 24 : -1)) << i;
}

TEST_P(Execution, BarriersAndThreadgroupMemory) {
  gpu.compile(R"(
kernel void reduce(device float* o [[buffer(0)]], device const float* x [[buffer(1)]], threadgroup float* dynamic [[threadgroup(0)]],
                   uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                   uint size [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]],
                   uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint nsg [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32], total;
  dynamic[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint half_size = size / 2; half_size > 0; half_size /= 2) {
    if (t < half_size) dynamic[t] += dynamic[t + half_size];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float s = simd_sum(x[i]);
  if (lane == 0) parts[sg] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (sg == 0) { s = simd_sum(lane < nsg ? parts[lane] : 0); if (lane == 0) total = s; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) { o[2 * g] = dynamic[0]; o[2 * g + 1] = total; }
})");
  constexpr size_t groups = 5, size = 256;
  std::vector<float> x(groups * size);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97);
  auto in = gpu.buffer(x);
  auto out = gpu.empty(groups * 8);
  ASSERT_EQ(gpu.run("reduce", {{out.get(), in.get()}, MTL::Size(groups, 1, 1), MTL::Size(size, 1, 1), false, size * 4}),
            "");
  const auto y = read<float>(out.get());
  for (size_t g = 0; g < groups; ++g) {
    const float sum =
        std::accumulate(x.begin() + static_cast<long>(g * size), x.begin() + static_cast<long>((g + 1) * size), 0.0f);
    EXPECT_EQ(y[2 * g], sum);
    EXPECT_EQ(y[2 * g + 1], sum);
  }
}

TEST_P(Execution, SimdgroupBarrierOrdersAnExchange) {
  gpu.compile(R"(
kernel void k(device float* o [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float box[128];
  threadgroup float* mine = box + sg * 32;
  for (int round = 0; round < 4; ++round) {
    mine[lane] = float(lane * 10 + round);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float got = mine[(lane + 1) % 32];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    o[t * 4 + round] = got;
  }
})");
  auto o = gpu.empty(128 * 16);
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(128, 1, 1)}), "");
  const auto y = read<float>(o.get());
  for (size_t t = 0; t < 128; ++t) {
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(y[t * 4 + r], static_cast<float>((t + 1) % 32 * 10 + r));
  }
}

TEST_P(Execution, Atomics) {
  gpu.compile(R"(
kernel void k(device atomic_uint* u [[buffer(0)]], device atomic_int* s [[buffer(1)]], device atomic_float* f [[buffer(2)]],
              uint i [[thread_position_in_grid]]) {
  threadgroup atomic_uint local[1];
  if (i % 64 == 0) atomic_store_explicit(&local[0], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&local[0], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i % 64 == 0) atomic_fetch_add_explicit(&u[0], atomic_load_explicit(&local[0], memory_order_relaxed), memory_order_relaxed);
  atomic_fetch_max_explicit(&u[1], i, memory_order_relaxed);
  atomic_fetch_or_explicit(&u[2], 1u << (i % 32), memory_order_relaxed);
  atomic_fetch_min_explicit(&s[0], -int(i), memory_order_relaxed);
  atomic_fetch_add_explicit(&f[0], 0.5f, memory_order_relaxed);
  uint expected = 0;
  if (atomic_compare_exchange_weak_explicit(&u[3], &expected, i + 1, memory_order_relaxed, memory_order_relaxed))
    atomic_fetch_add_explicit(&u[4], 1u, memory_order_relaxed);
})");
  auto u = gpu.buffer(std::vector<uint32_t>(5)), s = gpu.buffer(std::vector<int>(1));
  auto f = gpu.buffer(std::vector<float>(1));
  ASSERT_EQ(gpu.run("k", {{u.get(), s.get(), f.get()}, MTL::Size(4, 1, 1), MTL::Size(64, 1, 1)}), "");
  const auto y = read<uint32_t>(u.get());
  EXPECT_EQ(y[0], 256u);
  EXPECT_EQ(y[1], 255u);
  EXPECT_EQ(y[2], ~0u);
  EXPECT_NE(y[3], 0u);
  EXPECT_EQ(y[4], 1u);
  EXPECT_EQ(read<int>(s.get())[0], -255);
  EXPECT_EQ(read<float>(f.get())[0], 128.0f);
}

TEST_P(Execution, SimdgroupMatrices) {
  gpu.compile(R"(
template <typename T>
kernel void mma(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device float* o [[buffer(2)]]) {
  threadgroup T staged[64];
  simdgroup_matrix<T, 8, 8> ma, mb, back;
  simdgroup_float8x8 acc = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  for (int k = 0; k < 2; ++k) {
    simdgroup_load(ma, a, 16, ulong2(k * 8, 0));
    simdgroup_load(mb, b, 16, ulong2(0, k * 8), true);
    simdgroup_store(mb, staged, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(back, staged, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_multiply_accumulate(acc, ma, back, acc);
  }
  simdgroup_store(acc, o, 8);
  simdgroup_float8x8 twice = simdgroup_float8x8(2.0f), product;
  simdgroup_multiply(product, acc, twice);
  simdgroup_store(product, o + 64, 8, ulong2(0, 0), true);
}
template [[host_name("mma_float")]] kernel void mma<float>(device const float*, device const float*, device float*);
template [[host_name("mma_half")]] kernel void mma<half>(device const half*, device const half*, device float*);
template [[host_name("mma_bfloat")]] kernel void mma<bfloat>(device const bfloat*, device const bfloat*, device float*);
)");
  std::vector<float> a(8 * 16), b(16 * 16);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 37 % 23) - 11) / 8;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i * 29 % 19) - 9) / 4;
  float want[64];
  for (size_t r = 0; r < 8; ++r) {
    for (size_t c = 0; c < 8; ++c) {
      float sum = 1;  // every product is exact
      for (size_t k = 0; k < 16; ++k) sum += a[r * 16 + k] * b[(k / 8 * 8 + c) * 16 + k % 8];
      want[r * 8 + c] = sum;
    }
  }
  auto check = [&](const char* name, MTL::Buffer* pa, MTL::Buffer* pb) {
    auto out = gpu.empty(128 * 4);
    ASSERT_EQ(gpu.run(name, {{pa, pb, out.get()}}), "") << name;
    const auto y = read<float>(out.get());
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(y[i], want[i]) << name << " " << i;
      EXPECT_EQ(y[64 + i % 8 * 8 + i / 8], 2 * want[i]) << name << " " << i;
    }
  };
  std::vector<uint16_t> ha, hb, ba, bb;
  for (float v : a) ha.push_back(float_to_half(v)), ba.push_back(float_to_bfloat(v));
  for (float v : b) hb.push_back(float_to_half(v)), bb.push_back(float_to_bfloat(v));
  check("mma_float", gpu.buffer(a).get(), gpu.buffer(b).get());
  check("mma_half", gpu.buffer(ha).get(), gpu.buffer(hb).get());
  check("mma_bfloat", gpu.buffer(ba).get(), gpu.buffer(bb).get());
}

TEST_P(Execution, ThreadElementsSeeTheWholeMatrix) {
  gpu.compile(R"(
kernel void k(device const float* x [[buffer(0)]], device float* o [[buffer(1)]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, x, 8);
  m.thread_elements() = m.thread_elements() * 2 + 1;
  simdgroup_store(m, o, 8);
})");
  std::vector<float> x(64);
  std::iota(x.begin(), x.end(), 0.0f);
  auto in = gpu.buffer(x), out = gpu.empty(256);
  ASSERT_EQ(gpu.run("k", {{in.get(), out.get()}}), "");
  const auto y = read<float>(out.get());
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], 2 * x[i] + 1);
}

TEST_P(Execution, IndirectDispatch) {
  gpu.compile(R"(
kernel void plan(device uint* counts [[buffer(0)]]) { counts[1] = 3; counts[2] = 2; counts[3] = 1; }
kernel void k(device atomic_uint* o [[buffer(0)]]) { atomic_fetch_add_explicit(o, 1u, memory_order_relaxed); })");
  auto counts = gpu.empty(16), o = gpu.buffer(std::vector<uint32_t>(1));
  auto* plan = gpu.pipeline("plan");
  auto* k = gpu.pipeline("k");
  auto* commands = gpu.queue->commandBuffer();
  auto* e = commands->computeCommandEncoder();
  e->setComputePipelineState(plan);
  e->setBuffer(counts.get(), 0, 0);
  e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(1, 1, 1));
  e->setComputePipelineState(k);
  e->setBuffer(o.get(), 0, 0);
  e->dispatchThreadgroups(counts.get(), 4, MTL::Size(10, 1, 1));
  e->endEncoding();
  ASSERT_EQ(Gpu::finish(commands), "");
  EXPECT_EQ(read<uint32_t>(o.get())[0], 60u);
}

TEST_P(Execution, ManyThreadsWithDeepStacks) {
  gpu.compile(R"(
kernel void k(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  float mine[512];
  for (int k = 0; k < 512; ++k) mine[k] = float(t + k);
  threadgroup_barrier(mem_flags::mem_none);
  float s = 0;
  for (int k = 0; k < 512; ++k) s += mine[(k * 7) % 512];
  o[i] = s;
})");
  auto o = gpu.empty(2048 * 4);
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(2, 1, 1), MTL::Size(1024, 1, 1)}), "");
  const auto y = read<float>(o.get());
  for (size_t i = 0; i < 2048; ++i) EXPECT_EQ(y[i], static_cast<float>(i % 1024 * 512 + 512 * 511 / 2)) << i;
}

}  // namespace
}  // namespace softmetal_test
