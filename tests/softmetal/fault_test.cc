// Every check of strict mode on a seeded fault that it must catch, beside a clean twin that must pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "harness.h"
#include "softmetal/audit.h"

namespace softmetal_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Loads and stores are watched by the sanitizers instead where the build has one; sanitizer_test.cc has those faults.
#if defined(SOFTMETAL_SANITIZED)
#define SKIP_WITHOUT_TRACKER() GTEST_SKIP() << "the sanitizer watches loads and stores in this build"
#else
#define SKIP_WITHOUT_TRACKER() (void)0
#endif

class Fault : public testing::Test {
 protected:
  Gpu gpu;
  static constexpr MTL::ResourceOptions kPrivate = MTL::ResourceStorageModePrivate;
};

// --- kernels
// ------------------------------------------------------------------------------------------------------------

TEST_F(Fault, IndexPastABuffersEnd) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void k(device float* out,\n"
      "              uint i [[thread_position_in_grid]]) {\n"
      "  out[i] = 1;\n"
      "}\n");
  auto out = gpu.empty(100 * 4);
  out->setLabel(MTLSTR("rows"));
  EXPECT_EQ(gpu.run("k", {{out.get()}, MTL::Size(100, 1, 1), MTL::Size(32, 1, 1), true}), "");
  EXPECT_THAT(gpu.run("k", {{out.get()}, MTL::Size(4, 1, 1), MTL::Size(32, 1, 1)}),
              AllOf(HasSubstr("kernel k (test.metal:3)"), HasSubstr("stores 4 bytes at offset 400 of buffer 0 'rows'"),
                    HasSubstr("which has 400 bytes")));
}

TEST_F(Fault, IndexBeforeABuffer) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile("kernel void k(device float* out, device const float* in, constant int& at) { out[0] = in[at]; }");
  auto out = gpu.empty(4), in = gpu.buffer(std::vector<float>{1, 2}), zero = gpu.buffer(std::vector<int>{0}),
       bad = gpu.buffer(std::vector<int>{-2});
  const MTL::Size one(1, 1, 1);
  EXPECT_EQ(gpu.run("k", {{out.get(), in.get(), zero.get()}, one, one}), "");
  EXPECT_THAT(gpu.run("k", {{out.get(), in.get(), bad.get()}, one, one}),
              HasSubstr("loads 4 bytes at offset -8 of buffer 1"));
}

// The compiler makes one block operation of each of these loops.
TEST_F(Fault, BlocksPastABuffersEnd) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "struct Row { float v[40]; };\n"
      "kernel void copy(device Row* out, device const Row* in) { out[1] = in[1]; }\n"
      "kernel void clear(device float* out) { for (uint i = 0; i < 80; ++i) out[i] = 0; }\n"
      "kernel void whole(device float* out) {\n"
      "  threadgroup float t[40];\n"
      "  for (uint i = 0; i < 40; ++i) t[i] = 0;\n"
      "  for (uint i = 0; i < 40; ++i) out[i] = t[i] + 1;\n"
      "}\n");
  auto rows = gpu.buffer(std::vector<float>(80, 1)), other = gpu.empty(320), unwritten = gpu.empty(320);
  auto shorter = gpu.buffer(std::vector<float>(79));
  const MTL::Size one(1, 1, 1);
  EXPECT_EQ(gpu.run("copy", {{other.get(), rows.get()}, one, one}), "");
  EXPECT_EQ(gpu.run("clear", {{other.get()}, one, one}), "");
  EXPECT_EQ(gpu.run("whole", {{other.get()}, one, one}), "");
  EXPECT_THAT(gpu.run("copy", {{other.get(), shorter.get()}, one, one}), HasSubstr("which has 316 bytes"));
  EXPECT_THAT(gpu.run("copy", {{shorter.get(), rows.get()}, one, one}), HasSubstr("which has 316 bytes"));
  EXPECT_THAT(gpu.run("copy", {{other.get(), unwritten.get()}, one, one}), HasSubstr("never written"));
  EXPECT_THAT(gpu.run("clear", {{shorter.get()}, one, one}), HasSubstr("which has 316 bytes"));
}

TEST_F(Fault, IndexPastInlineBytes) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile("kernel void k(device uint* out, constant uint* table) { out[0] = table[3] + table[out[1]]; }");
  auto* state = gpu.pipeline("k");
  for (uint32_t at : {3u, 4u}) {
    auto out = gpu.buffer(std::vector<uint32_t>{0, at});
    const uint32_t table[4] = {1, 2, 3, 4}, more[4] = {};
    auto* commands = gpu.queue->commandBuffer();
    auto* e = commands->computeCommandEncoder();
    e->setComputePipelineState(state);
    e->setBuffer(out.get(), 0, 0);
    e->setBytes(table, sizeof table, 1);
    e->setBytes(more, sizeof more, 2);
    e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(1, 1, 1));
    e->endEncoding();
    const std::string error = Gpu::finish(commands);
    EXPECT_EQ(error.empty(), at == 3) << error;
  }
}

TEST_F(Fault, IndexPastThreadgroupMemory) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void k(device float* out, constant uint& at) {\n"
      "  threadgroup float t[8];\n"
      "  t[at] = 1;\n"
      "  out[0] = t[at];\n"
      "}\n");
  auto out = gpu.empty(4), in = gpu.buffer(std::vector<uint32_t>{7}), over = gpu.buffer(std::vector<uint32_t>{8});
  const MTL::Size one(1, 1, 1);
  EXPECT_EQ(gpu.run("k", {{out.get(), in.get()}, one, one}), "");
  EXPECT_THAT(gpu.run("k", {{out.get(), over.get()}, one, one}),
              AllOf(HasSubstr("test.metal:3"), HasSubstr("threadgroup memory")));
}

TEST_F(Fault, ABufferThatIsNotBound) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "struct Table { device float* rows; };\n"
      "kernel void k(device float* out, constant Table& table) { out[0] = table.rows[0]; }");
  auto out = gpu.empty(4), rows = gpu.buffer(std::vector<float>{5});
  rows->setLabel(MTLSTR("weights"));
  auto table = gpu.buffer(std::vector<uint64_t>{rows->gpuAddress()});
  auto* state = gpu.pipeline("k");
  for (bool use : {false, true}) {
    auto* commands = gpu.queue->commandBuffer();
    auto* e = commands->computeCommandEncoder();
    e->setComputePipelineState(state);
    e->setBuffer(out.get(), 0, 0);
    e->setBuffer(table.get(), 0, 1);
    if (use) e->useResource(rows.get(), MTL::ResourceUsageRead);
    e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(1, 1, 1));
    e->endEncoding();
    const std::string error = Gpu::finish(commands);
    if (use) {
      EXPECT_EQ(error, "");
      EXPECT_EQ(read<float>(out.get())[0], 5.0f);
    } else {
      EXPECT_THAT(error, HasSubstr("the buffer 'weights', which is not bound"));
    }
  }
}

TEST_F(Fault, MemoryNeverWritten) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void k(device float* out, device const float* in, uint i [[thread_position_in_grid]]) {\n"
      "  out[i] = in[i];\n"
      "}\n"
      "kernel void fill(device float* out, uint i [[thread_position_in_grid]]) { out[i] = 0; }\n");
  auto out = gpu.empty(32 * 4, kPrivate), in = gpu.empty(32 * 4, kPrivate), host = gpu.empty(32 * 4);
  const std::string expected = "loads memory that was never written, at offset 0 of buffer 1";
  EXPECT_THAT(gpu.run("k", {{out.get(), in.get()}}), AllOf(HasSubstr(expected), HasSubstr("test.metal:2")));
  EXPECT_THAT(gpu.run("k", {{out.get(), host.get()}}), HasSubstr(expected));
  EXPECT_EQ(gpu.run("fill", {{in.get()}}), "");
  EXPECT_EQ(gpu.run("k", {{out.get(), in.get()}}), "");
  std::memset(host->contents(), 0xff, 32 * 4);  // -1 and NaN are values like any other
  EXPECT_EQ(gpu.run("k", {{out.get(), host.get()}}), "");
  // A copy of nothing is nothing.
  auto fresh = gpu.empty(32 * 4, kPrivate), copy = gpu.empty(32 * 4, kPrivate);
  auto* commands = gpu.queue->commandBuffer();
  auto* blit = commands->blitCommandEncoder();
  blit->copyFromBuffer(fresh.get(), 0, copy.get(), 0, 32 * 4);
  blit->endEncoding();
  EXPECT_EQ(Gpu::finish(commands), "");
  EXPECT_THAT(gpu.run("k", {{out.get(), copy.get()}}), HasSubstr("never written"));
}

TEST_F(Fault, ThreadgroupMemoryNeverWritten) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void bad(device float* out, uint i [[thread_position_in_grid]]) {\n"
      "  threadgroup float t[64];\n"
      "  t[i] = i;\n"
      "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  out[i] = t[i + 1];\n"
      "}\n"
      "kernel void good(device float* out, uint i [[thread_position_in_grid]]) {\n"
      "  threadgroup float t[64];\n"
      "  t[i] = t[i + 32] = i;\n"
      "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  out[i] = t[i + 1];\n"
      "}\n");
  auto out = gpu.empty(32 * 4);
  EXPECT_THAT(gpu.run("bad", {{out.get()}}),
              AllOf(HasSubstr("threadgroup memory that was never written"), HasSubstr("test.metal:5")));
  EXPECT_EQ(gpu.run("good", {{out.get()}}), "");
}

TEST_F(Fault, PoisonIsNotANumber) {
  softmetal::Options o = softmetal::options();
  o.unwritten = softmetal::Unwritten::poison;
  softmetal::set_options(o);
  gpu.device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  gpu.queue = NS::TransferPtr(gpu.device->newCommandQueue());
  gpu.compile(
      "kernel void k(device float* out, device const float* f, device const half* h, device const bfloat* b) {\n"
      "  threadgroup float t[4];\n"
      "  out[0] = isnan(f[0]); out[1] = isnan(h[1]); out[2] = isnan(b[3]); out[3] = isnan(t[2]);\n"
      "}\n");
  auto out = gpu.empty(16), a = gpu.empty(64, kPrivate);
  EXPECT_EQ(gpu.run("k", {{out.get(), a.get(), a.get(), a.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)}), "");
  EXPECT_EQ(read<float>(out.get()), (std::vector<float>{1, 1, 1, 1}));
}

TEST_F(Fault, MissingBarrierInAThreadgroup) {
  SKIP_WITHOUT_TRACKER();
  const char* source =
      "kernel void k(device float* out, uint i [[thread_index_in_threadgroup]]) {\n"
      "  threadgroup float t[64];\n"
      "  t[i] = i;\n"
      "  BARRIER;\n"
      "  out[i] = t[63 - i];\n"
      "}\n";
  auto out = gpu.empty(64 * 4);
  const Gpu::Run run{{out.get()}, MTL::Size(1, 1, 1), MTL::Size(64, 1, 1)};
  gpu.compile(source, {{"BARRIER", "threadgroup_barrier(mem_flags::mem_threadgroup)"}});
  EXPECT_EQ(gpu.run("k", run), "");
  // In order of threads the loads come first; in another order they race.
  gpu.compile(source, {{"BARRIER", "simdgroup_barrier(mem_flags::mem_threadgroup)"}});
  EXPECT_NE(gpu.run("k", run), "");
  for (uint64_t seed : {1, 2, 3, 4}) {
    Gpu shuffled(softmetal::Mode::strict, seed);
    shuffled.compile(source, {{"BARRIER", ""}});
    auto o = shuffled.empty(64 * 4);
    EXPECT_NE(shuffled.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(64, 1, 1)}), "") << seed;
  }
}

TEST_F(Fault, RaceWithinASimdgroup) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void bad(device float* out, uint i [[thread_index_in_threadgroup]]) {\n"
      "  threadgroup float t[32];\n"
      "  t[i] = i;\n"
      "  simdgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  float x = t[(i + 1) % 32];\n"
      "  t[i] = x + 1;\n"
      "  simdgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  out[i] = t[i];\n"
      "}\n");
  auto out = gpu.empty(32 * 4);
  EXPECT_THAT(gpu.run("bad", {{out.get()}}),
              AllOf(HasSubstr("a race of two threads in threadgroup memory"), HasSubstr("test.metal:")));
}

TEST_F(Fault, RaceBetweenThreadgroups) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(
      "kernel void bad(device float* out, uint g [[threadgroup_position_in_grid]]) {\n"
      "  out[0] = g;\n"
      "}\n"
      "kernel void good(device float* out, uint g [[threadgroup_position_in_grid]]) { out[g] = g; }\n"
      "kernel void counted(device atomic_uint* out) { atomic_fetch_add_explicit(out, 1u, memory_order_relaxed); }\n");
  auto out = gpu.buffer(std::vector<uint32_t>(8));
  const Gpu::Run run{{out.get()}, MTL::Size(8, 1, 1), MTL::Size(1, 1, 1)};
  EXPECT_THAT(gpu.run("bad", run), AllOf(HasSubstr("a race of two threads"), HasSubstr("kernel bad (test.metal:2)")));
  EXPECT_EQ(gpu.run("good", run), "");
  EXPECT_EQ(gpu.run("counted", run), "");
}

TEST_F(Fault, BarrierNotReachedByAll) {
  gpu.compile(
      "kernel void bad(device float* out, uint i [[thread_position_in_grid]]) {\n"
      "  if (i >= 40) return;\n"
      "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  out[i] = i;\n"
      "}\n"
      "kernel void two(device float* out, uint i [[thread_position_in_grid]]) {\n"
      "  if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  else threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  out[i] = i;\n"
      "}\n"
      "kernel void good(device float* out, uint i [[thread_position_in_grid]]) {\n"
      "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "  if (i >= 40) return;\n"
      "  out[i] = i;\n"
      "}\n");
  auto out = gpu.empty(64 * 4);
  const Gpu::Run run{{out.get()}, MTL::Size(1, 1, 1), MTL::Size(64, 1, 1)};
  EXPECT_THAT(gpu.run("bad", run), AllOf(HasSubstr("kernel bad: threadgroup_barrier reached by 40 of 64 threads"),
                                         HasSubstr("test.metal:3")));
  EXPECT_THAT(gpu.run("two", run), AllOf(HasSubstr("different threadgroup_barrier calls"), HasSubstr("test.metal:")));
  EXPECT_EQ(gpu.run("good", run), "");
}

TEST_F(Fault, TooMuchThreadgroupMemory) {
  gpu.compile(
      "kernel void most(device float* out) { threadgroup float t[8192]; t[0] = 1; out[0] = t[0]; }\n"
      "kernel void over(device float* out) { threadgroup float t[8193]; t[0] = 1; out[0] = t[0]; }\n"
      "kernel void dynamic(device float* out, threadgroup float* t [[threadgroup(0)]]) { t[0] = 1; out[0] = t[0]; }\n");
#if !defined(SOFTMETAL_SANITIZED)  // red zones count as memory there
  EXPECT_EQ(gpu.pipeline("most")->staticThreadgroupMemoryLength(), 32768u);
#endif
  try {
    gpu.pipeline("over");
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("kernel over (test.metal:2)"), HasSubstr("the limit is 32768")));
  }
  auto out = gpu.empty(4);
  Gpu::Run run{{out.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1), false, 32768};
  EXPECT_EQ(gpu.run("dynamic", run), "");
  run.threadgroup_bytes += 16;
  EXPECT_THAT(violation([&] { gpu.run("dynamic", run); }),
              HasSubstr("32784 bytes of threadgroup memory, the limit is 32768"));
}

TEST_F(Fault, ThreadgroupTooLarge) {
  gpu.compile(
      "kernel void k(device float* out) { out[0] = 1; }\n"
      "[[max_total_threads_per_threadgroup(64)]] kernel void small(device float* out) { out[0] = 1; }\n");
  auto out = gpu.empty(4);
  EXPECT_THAT(violation([&] { gpu.run("k", {{out.get()}, MTL::Size(1, 1, 1), MTL::Size(1024, 2, 1)}); }),
              HasSubstr("kernel k: a threadgroup of 2048 threads"));
  EXPECT_EQ(gpu.pipeline("small")->maxTotalThreadsPerThreadgroup(), 64u);
  EXPECT_THAT(violation([&] { gpu.run("small", {{out.get()}, MTL::Size(1, 1, 1), MTL::Size(96, 1, 1)}); }),
              HasSubstr("kernel small: a threadgroup of 96 threads"));
}

// --- hazards between commands
// ---------------------------------------------------------------------------------------------

class Hazard : public Fault {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_TRACKER();
    gpu.compile(
        "kernel void produce(device float* a, uint i [[thread_position_in_grid]]) { a[i] = i; }\n"
        "kernel void consume(device const float* a, device float* b, uint i [[thread_position_in_grid]]) { b[i] = "
        "a[i]; }\n");
    a = gpu.empty(128, kPrivate), b = gpu.empty(128, kPrivate), c = gpu.empty(128, kPrivate);
    a->setLabel(MTLSTR("a"));
    produce = gpu.pipeline("produce");
    consume = gpu.pipeline("consume");
  }
  void encode_produce(MTL::ComputeCommandEncoder* e, MTL::Buffer* to, size_t offset = 0, size_t threads = 32) {
    e->setComputePipelineState(produce);
    e->setBuffer(to, offset, 0);
    e->dispatchThreads(MTL::Size(threads, 1, 1), MTL::Size(32, 1, 1));
  }
  void encode_consume(MTL::ComputeCommandEncoder* e, MTL::Buffer* from, MTL::Buffer* to) {
    e->setComputePipelineState(consume);
    e->setBuffer(from, 0, 0);
    e->setBuffer(to, 0, 1);
    e->dispatchThreads(MTL::Size(32, 1, 1), MTL::Size(32, 1, 1));
  }
  template <class F>
  std::string concurrent(F encode) {
    auto* commands = gpu.queue->commandBuffer();
    auto* e = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
    encode(e);
    e->endEncoding();
    return Gpu::finish(commands);
  }
  NS::SharedPtr<MTL::Buffer> a, b, c;
  MTL::ComputePipelineState *produce = nullptr, *consume = nullptr;
};

TEST_F(Hazard, ReadAfterWrite) {
  EXPECT_THAT(concurrent([&](auto* e) { encode_produce(e, a.get()), encode_consume(e, a.get(), b.get()); }),
              AllOf(HasSubstr("kernel consume (test.metal:2)"),
                    HasSubstr("reads what is written by produce with no barrier"), HasSubstr("'a'")));
  EXPECT_EQ(concurrent([&](auto* e) {
              encode_produce(e, a.get());
              e->memoryBarrier(MTL::BarrierScopeBuffers);
              encode_consume(e, a.get(), b.get());
            }),
            "");
}

TEST_F(Hazard, BarrierForNamedResources) {
  auto with_barrier_for = [&](MTL::Buffer* named) {
    return concurrent([&](auto* e) {
      encode_produce(e, a.get());
      const MTL::Resource* resources[] = {named};
      e->memoryBarrier(resources, 1);
      encode_consume(e, a.get(), b.get());
    });
  };
  EXPECT_EQ(with_barrier_for(a.get()), "");
  EXPECT_THAT(with_barrier_for(c.get()), HasSubstr("no barrier between"));
}

TEST_F(Hazard, WriteAfterReadAndWrite) {
  EXPECT_THAT(concurrent([&](auto* e) { encode_produce(e, a.get()), encode_produce(e, a.get()); }),
              HasSubstr("writes what is written by produce"));
  EXPECT_EQ(concurrent([&](auto* e) { encode_produce(e, a.get(), 0, 16), encode_produce(e, a.get(), 64, 16); }), "")
      << "the halves of one buffer are apart";
  EXPECT_THAT(concurrent([&](auto* e) { encode_consume(e, a.get(), b.get()), encode_produce(e, a.get()); }),
              HasSubstr("writes what is read by consume"));
  EXPECT_EQ(concurrent([&](auto* e) { encode_consume(e, a.get(), b.get()), encode_consume(e, a.get(), c.get()); }), "")
      << "two may read";
}

TEST_F(Hazard, SerialEncodersAndTrackedBuffersAreOrdered) {
  auto* commands = gpu.queue->commandBuffer();
  auto* e = commands->computeCommandEncoder();
  encode_produce(e, a.get());
  encode_consume(e, a.get(), b.get());
  e->endEncoding();
  e = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  encode_consume(e, b.get(), c.get());
  e->endEncoding();
  EXPECT_EQ(Gpu::finish(commands), "");
}

TEST_F(Hazard, UntrackedBuffersNeedAFenceBetweenEncoders) {
  auto run = [&](bool fenced) {
    auto u = gpu.empty(128, kPrivate | MTL::ResourceHazardTrackingModeUntracked);
    auto fence = NS::TransferPtr(gpu.device->newFence());
    auto* commands = gpu.queue->commandBuffer();
    auto* e = commands->computeCommandEncoder();
    encode_produce(e, u.get());
    if (fenced) e->updateFence(fence.get());
    e->endEncoding();
    e = commands->computeCommandEncoder();
    if (fenced) e->waitForFence(fence.get());
    encode_consume(e, u.get(), b.get());
    e->endEncoding();
    return Gpu::finish(commands);
  };
  EXPECT_EQ(run(true), "");
  EXPECT_THAT(run(false), HasSubstr("reads what is written by produce with no fence between"));
}

// A fence tells of the encoder that updated it, and of what that one had waited for.
TEST_F(Hazard, AFenceOfAnotherEncoderIsNone) {
  auto run = [&](bool between_waits) {
    auto u = gpu.empty(128, kPrivate | MTL::ResourceHazardTrackingModeUntracked);
    auto first = NS::TransferPtr(gpu.device->newFence()), second = NS::TransferPtr(gpu.device->newFence());
    auto* commands = gpu.queue->commandBuffer();
    auto* e = commands->computeCommandEncoder();
    encode_produce(e, u.get());
    e->updateFence(first.get());
    e->endEncoding();
    e = commands->computeCommandEncoder();
    if (between_waits) e->waitForFence(first.get());
    encode_produce(e, a.get());
    e->updateFence(second.get());
    e->endEncoding();
    e = commands->computeCommandEncoder();
    e->waitForFence(second.get());
    encode_consume(e, u.get(), b.get());
    e->endEncoding();
    return Gpu::finish(commands);
  };
  EXPECT_EQ(run(true), "");
  EXPECT_THAT(run(false), HasSubstr("reads what is written by produce with no fence between"));
}

// --- the host
// -------------------------------------------------------------------------------------------------------------

TEST_F(Fault, ContentsOfAPrivateBuffer) {
  auto b = gpu.empty(16, kPrivate), shared = gpu.empty(16);
  b->setLabel(MTLSTR("kv"));
  EXPECT_THAT(violation([&] { b->contents(); }), HasSubstr("contents() of the private buffer 'kv'"));
  EXPECT_NE(shared->contents(), nullptr);
}

// A buffer that both reach: the GPU writes a number, the host looks at it and writes another, the GPU reads that.
TEST_F(Fault, TheHostTouchesABufferBetweenTwoEvents) {
  SKIP_WITHOUT_TRACKER();
  gpu.compile(R"(
    kernel void send(device uint* box) { box[0] = 1; }
    kernel void pass(device uint* other) { for (uint i = 0; i < 100000; ++i) other[0] = i; }
    kernel void take(device const uint* box, device uint* out) { out[0] = box[0]; })");
  MTL::ComputePipelineState *send = gpu.pipeline("send"), *pass = gpu.pipeline("pass"), *take = gpu.pipeline("take");
  const auto run = [&](bool signals, bool waits) {
    auto box = gpu.empty(16), out = gpu.empty(16);
    auto event = NS::TransferPtr(gpu.device->newSharedEvent());
    auto* commands = gpu.queue->commandBuffer();
    const auto dispatch = [&](MTL::ComputePipelineState* pipeline, MTL::Buffer* to) {
      auto* e = commands->computeCommandEncoder();
      e->setComputePipelineState(pipeline);
      e->setBuffer(to, 0, 0);
      e->setBuffer(out.get(), 0, 1);
      e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(1, 1, 1));
      e->endEncoding();
    };
    if (!signals) commands->encodeSignalEvent(event.get(), 1);  // too early
    dispatch(send, box.get());
    if (signals) commands->encodeSignalEvent(event.get(), 1);
    dispatch(pass, out.get());  // time for the host, which takes its turn between two dispatches
    if (waits) commands->encodeWait(event.get(), 2);
    dispatch(take, box.get());
    commands->commit();
    event->waitUntilSignaledValue(1, 10000);
    const volatile auto* number = static_cast<uint32_t*>(box->contents());
    while (!signals && *number != 1) std::this_thread::yield();
    const std::string host = violation([&] { softmetal::host_access(box.get(), 0, 4, true); });
    static_cast<uint32_t*>(box->contents())[0] = 7;
    event->setSignaledValue(2);
    commands->waitUntilCompleted();
    const NS::Error* error = commands->error();
    return host + (error ? error->localizedDescription()->utf8String() : "");
  };
  EXPECT_EQ(run(true, true), "");
  EXPECT_THAT(run(false, true), HasSubstr("the host writes what is written by send with no event between"));
  EXPECT_THAT(run(true, false), HasSubstr("with no event between"));
}

TEST_F(Fault, WhatIsForbiddenWhileEncoding) {
  gpu.compile("kernel void k(device float* out) { out[0] = 1; }");
  auto b = gpu.empty(16);
  auto* done = gpu.queue->commandBuffer();
  EXPECT_EQ(Gpu::finish(done), "");
  auto event = NS::TransferPtr(gpu.device->newSharedEvent());
  struct {
    const char* name;
    std::function<void()> act;
  } acts[] = {
      {"contents()", [&] { b->contents(); }},
      {"newBuffer()", [&] { gpu.empty(16); }},
      {"newComputePipelineState()", [&] { gpu.pipeline("k"); }},
      {"newLibrary()", [&] { gpu.compile("kernel void k(device float* out) { out[0] = 1; }"); }},
      {"commit()", [&] { gpu.queue->commandBuffer()->commit(); }},
      {"waitUntilCompleted()", [&] { done->waitUntilCompleted(); }},
      {"waitUntilScheduled()", [&] { done->waitUntilScheduled(); }},
      {"status()", [&] { gpu.queue->commandBuffer()->status(); }},
      {"signaledValue()", [&] { event->signaledValue(); }},
      {"waitUntilSignaledValue()", [&] { event->waitUntilSignaledValue(0, 1); }},
      {"didModifyRange()", [&] { b->didModifyRange(NS::Range::Make(0, 4)); }},
      {"synchronizeResource()",
       [&] { gpu.queue->commandBuffer()->blitCommandEncoder()->synchronizeResource(b.get()); }},
  };
  for (auto& [name, act] : acts) {
    softmetal::begin_step();
    softmetal::begin_encode();
    EXPECT_THAT(violation(act), AllOf(HasSubstr(name), HasSubstr("in the encode phase"))) << name;
    softmetal::end_encode();
    softmetal::end_step();
    const std::string outside = violation(act);
    EXPECT_TRUE(outside.find("step") == std::string::npos) << name << " outside of a step: " << outside;
  }
}

TEST_F(Fault, OneCommandBufferAndOneWaitAStep) {
  auto step = [&](int buffers, int waits) {
    return violation([&] {
      softmetal::StepScope scope;
      MTL::CommandBuffer* commands = nullptr;
      {
        softmetal::EncodeScope encoding;
        for (int i = 0; i < buffers; ++i) commands = gpu.queue->commandBuffer();
      }
      commands->commit();
      for (int i = 0; i < waits; ++i) commands->waitUntilCompleted();
    });
  };
  EXPECT_EQ(step(1, 1), "");
  EXPECT_THAT(step(2, 1), HasSubstr("a second command buffer in a step"));
  EXPECT_THAT(step(1, 2), HasSubstr("a second wait in a step"));
  EXPECT_EQ(step(1, 1), "") << "a broken step leaves no trace";
  EXPECT_THAT(violation([&] {
                softmetal::StepScope scope;
                gpu.queue->commandBuffer()->status();
              }),
              HasSubstr("status() in a step"));
  EXPECT_THAT(violation([&] {
                softmetal::StepScope outer;
                softmetal::StepScope inner;
              }),
              HasSubstr("begin_step() in a step"));
  softmetal::end_step();
}

TEST_F(Fault, WhatAppleValidates) {
  gpu.compile("kernel void k(device float4* out, constant uint4& p) { out[0] = float4(p); }");
  auto* state = gpu.pipeline("k");
  auto b = gpu.empty(64), copy = gpu.empty(64);
  uint32_t p[4] = {};
  auto* commands = gpu.queue->commandBuffer();
  auto* e = commands->computeCommandEncoder();
  const MTL::Size one(1, 1, 1);
  EXPECT_THAT(violation([&] { e->dispatchThreadgroups(one, one); }), HasSubstr("no pipeline"));
  e->setComputePipelineState(state);
  EXPECT_THAT(violation([&] { e->dispatchThreadgroups(one, one); }),
              HasSubstr("kernel k: buffer out at index 0 is not set"));
  EXPECT_THAT(violation([&] { e->setBuffer(b.get(), 64, 0); }), HasSubstr("which has 64 bytes"));
  EXPECT_THAT(violation([&] { e->setBuffer(b.get(), 0, 31); }), HasSubstr("over the limit"));
  std::vector<char> large(4097);
  EXPECT_THAT(violation([&] { e->setBytes(large.data(), large.size(), 1); }), HasSubstr("4097 bytes"));
  EXPECT_THAT(violation([&] { e->setThreadgroupMemoryLength(20, 0); }), HasSubstr("multiple of 16"));
  e->setBytes(p, 8, 1);
  e->setBuffer(b.get(), 0, 0);
  EXPECT_THAT(violation([&] { e->dispatchThreadgroups(one, one); }), HasSubstr("buffer p at index 1 holds 8 bytes"));
  e->setBytes(p, 16, 1);
  e->setBuffer(b.get(), 4, 0);
  EXPECT_THAT(violation([&] { e->dispatchThreadgroups(one, one); }), HasSubstr("offset 4 is not a multiple of 16"));
  e->setBytes(p, 16, 0);
  EXPECT_THAT(violation([&] { e->dispatchThreadgroups(one, one); }), HasSubstr("is written by the kernel"));
  e->setBuffer(b.get(), 16, 0);
  EXPECT_EQ(violation([&] { e->dispatchThreadgroups(one, one); }), "");
  EXPECT_THAT(violation([&] { commands->commit(); }), HasSubstr("an encoder has not ended"));
  EXPECT_THAT(violation([&] { commands->blitCommandEncoder(); }), HasSubstr("has not ended"));
  e->endEncoding();
  EXPECT_THAT(violation([&] { e->setBuffer(b.get(), 0, 0); }), HasSubstr("the encoder has ended"));
  auto* blit = commands->blitCommandEncoder();
  EXPECT_THAT(violation([&] { blit->copyFromBuffer(b.get(), 0, copy.get(), 4, 64); }),
              HasSubstr("64 bytes from offset 4"));
  EXPECT_THAT(violation([&] { blit->copyFromBuffer(b.get(), 0, copy.get(), 0, 2); }), HasSubstr("multiples of 4"));
  EXPECT_THAT(violation([&] { blit->fillBuffer(b.get(), NS::Range::Make(60, 8), 0); }), HasSubstr("fillBuffer()"));
  blit->endEncoding();
  EXPECT_EQ(Gpu::finish(commands), "");
  EXPECT_THAT(violation([&] { commands->commit(); }), HasSubstr("committed already"));
  EXPECT_THAT(violation([&] { gpu.empty(16, MTL::ResourceStorageModeManaged); }), HasSubstr("managed"));
}

}  // namespace
}  // namespace softmetal_test
