// The host side: ownership, order, events, blits, counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "harness.h"

namespace softmetal_test {
namespace {

TEST(Foundation, PoolsAndPointersCountOwners) {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  auto s = NS::TransferPtr(NS::String::alloc()->init("abc", NS::UTF8StringEncoding));
  EXPECT_EQ(s->retainCount(), 1u);
  {
    NS::SharedPtr<NS::String> copy = s, moved = std::move(copy);
    EXPECT_EQ(s->retainCount(), 2u);
    EXPECT_FALSE(copy);
    auto inner = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    s->retain()->autorelease();
    EXPECT_EQ(s->retainCount(), 3u);
    inner.reset();
    EXPECT_EQ(s->retainCount(), 2u);
  }
  EXPECT_EQ(s->retainCount(), 1u);
  NS::Array* array = NS::Array::array(s.get());
  EXPECT_EQ(array->object<NS::String>(0), s.get());
  EXPECT_EQ(s->retainCount(), 2u);
  EXPECT_TRUE(s->isEqualToString(MTLSTR("abc")));
  NS::Dictionary* d = NS::Dictionary::dictionary(NS::Number::number(3), MTLSTR("key"));
  EXPECT_EQ(d->object<NS::Number>(NS::String::string("key", NS::UTF8StringEncoding))->intValue(), 3);
}

TEST(Device, TellsItsLimits) {
  Gpu gpu;
  EXPECT_EQ(gpu.device->maxThreadgroupMemoryLength(), 32768u);
  EXPECT_EQ(gpu.device->maxThreadsPerThreadgroup().width, 1024u);
  EXPECT_TRUE(gpu.device->hasUnifiedMemory());
  EXPECT_TRUE(gpu.device->supportsFamily(MTL::GPUFamilyApple7));
  EXPECT_TRUE(gpu.device->supportsFamily(MTL::GPUFamilyMetal3));
  EXPECT_FALSE(gpu.device->supportsFamily(MTL::GPUFamilyApple10));
  EXPECT_GT(gpu.device->recommendedMaxWorkingSetSize(), 1u << 28);
  const auto before = gpu.device->currentAllocatedSize();
  {
    auto b = gpu.empty(100000);
    EXPECT_EQ(gpu.device->currentAllocatedSize() - before, b->allocatedSize());
  }
  EXPECT_EQ(gpu.device->currentAllocatedSize(), before);
}

TEST(Device, OptionsComeFromTheEnvironment) {
  setenv("SOFTMETAL_FAMILY", "7", 1);
  setenv("SOFTMETAL_MEMORY_MB", "512", 1);
  EXPECT_EQ(softmetal::options_from_environment().gpu_family, 1007);
  EXPECT_EQ(softmetal::options_from_environment().working_set_bytes, 512u << 20);
  setenv("SOFTMETAL_FAMILY", "many", 1);
  EXPECT_THROW(softmetal::options_from_environment(), std::invalid_argument);
  unsetenv("SOFTMETAL_FAMILY");
  unsetenv("SOFTMETAL_MEMORY_MB");
}

TEST(Commands, RunInOrderBesideTheHost) {
  Gpu gpu;
  gpu.compile("kernel void add(device uint* o, constant uint& v) { o[0] = o[0] * 10 + v; }");
  auto* state = gpu.pipeline("add");
  auto o = gpu.buffer(std::vector<uint32_t>{0});
  auto event = NS::TransferPtr(gpu.device->newSharedEvent());
  std::atomic<int> completed{0};
  MTL::CommandBuffer* last = nullptr;
  for (uint32_t i = 1; i <= 4; ++i) {
    last = gpu.queue->commandBuffer();
    if (i == 1) last->encodeWait(event.get(), 7);
    auto* e = last->computeCommandEncoder();
    e->setComputePipelineState(state);
    e->setBuffer(o.get(), 0, 0);
    e->setBytes(&i, 4, 1);
    e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(1, 1, 1));
    e->endEncoding();
    last->addCompletedHandler([&](MTL::CommandBuffer*) { ++completed; });
    last->commit();
  }
  EXPECT_EQ(completed, 0) << "nothing runs before the event";
  event->setSignaledValue(7);
  last->waitUntilCompleted();
  EXPECT_EQ(completed, 4);
  EXPECT_EQ(read<uint32_t>(o.get())[0], 1234u);
  EXPECT_GT(last->GPUEndTime(), last->GPUStartTime());
}

TEST(Commands, EventsJoinTwoQueues) {
  Gpu gpu;
  auto other = NS::TransferPtr(gpu.device->newCommandQueue());
  auto a = gpu.buffer(std::vector<uint32_t>{1, 2, 3, 4}), b = gpu.empty(16), c = gpu.empty(16);
  auto event = NS::TransferPtr(gpu.device->newEvent());
  auto* second = other->commandBuffer();
  second->encodeWait(event.get(), 1);
  auto* blit = second->blitCommandEncoder();
  blit->copyFromBuffer(b.get(), 0, c.get(), 0, 16);
  blit->endEncoding();
  second->commit();
  auto* first = gpu.queue->commandBuffer();
  blit = first->blitCommandEncoder();
  blit->copyFromBuffer(a.get(), 0, b.get(), 0, 16);
  blit->endEncoding();
  first->encodeSignalEvent(event.get(), 1);
  first->commit();
  second->waitUntilCompleted();
  EXPECT_EQ(read<uint32_t>(c.get()), (std::vector<uint32_t>{1, 2, 3, 4}));
}

TEST(Commands, OutliveTheirQueueAndBuffers) {
  NS::SharedPtr<MTL::Buffer> out;
  {
    Gpu gpu;
    out = gpu.empty(16);
    auto in = gpu.buffer(std::vector<uint32_t>{9, 8, 7, 6});
    auto* commands = gpu.queue->commandBuffer();
    auto* blit = commands->blitCommandEncoder();
    blit->copyFromBuffer(in.get(), 0, out.get(), 0, 16);
    blit->endEncoding();
    std::atomic<bool> done{false};
    commands->addCompletedHandler([&](MTL::CommandBuffer*) { done = true; });
    commands->commit();
    in.reset();
    gpu.queue.reset();
    while (!done) std::this_thread::yield();
  }
  EXPECT_EQ(read<uint32_t>(out.get()), (std::vector<uint32_t>{9, 8, 7, 6}));
}

// Asked from another thread than the one that runs them.
TEST(Commands, TheirStatusMayBeAskedWhileTheyRun) {
  Gpu gpu;
  for (int round = 0; round < 50; ++round) {
    auto buffer = gpu.empty(4096);
    auto* commands = gpu.queue->commandBuffer();
    auto* blit = commands->blitCommandEncoder();
    blit->fillBuffer(buffer.get(), NS::Range(0, 4096), static_cast<uint8_t>(round));
    blit->endEncoding();
    commands->addCompletedHandler([](MTL::CommandBuffer*) {});  // so that it runs at once, not in the wait
    commands->commit();
    while (commands->status() < MTL::CommandBufferStatusCompleted) std::this_thread::yield();
    EXPECT_EQ(commands->error(), nullptr);
    EXPECT_GE(commands->GPUEndTime(), commands->GPUStartTime());
    commands->waitUntilCompleted();
    EXPECT_EQ(read<uint8_t>(buffer.get())[4095], round);
  }
}

TEST(Commands, AFailureLeavesTheDeviceUsable) {
  Gpu gpu;
  gpu.compile(
      "kernel void bad(device float* o, uint i [[thread_position_in_grid]]) { if (i < 3) return; "
      "threadgroup_barrier(mem_flags::mem_none); o[i] = 1; }\n"
      "kernel void good(device float* o, uint i [[thread_position_in_grid]]) { "
      "threadgroup_barrier(mem_flags::mem_none); o[i] = 2; }\n");
  auto o = gpu.empty(128);
  for (int round = 0; round < 3; ++round) {
    EXPECT_NE(gpu.run("bad", {{o.get()}}), "");
    EXPECT_EQ(gpu.run("good", {{o.get()}}), "");
    EXPECT_EQ(read<float>(o.get())[31], 2.0f);
  }
}

TEST(Commands, FillAndCopy) {
  Gpu gpu;
  auto a = gpu.empty(64, MTL::ResourceStorageModePrivate), b = gpu.empty(64);
  auto* commands = gpu.queue->commandBuffer();
  auto* blit = commands->blitCommandEncoder();
  blit->fillBuffer(a.get(), NS::Range::Make(0, 64), 1);
  blit->fillBuffer(a.get(), NS::Range::Make(16, 16), 2);
  blit->copyFromBuffer(a.get(), 8, b.get(), 0, 56);
  blit->fillBuffer(b.get(), NS::Range::Make(56, 8), 3);
  blit->endEncoding();
  EXPECT_EQ(Gpu::finish(commands), "");
  const auto y = read<uint8_t>(b.get());
  EXPECT_EQ(y[7], 1);
  EXPECT_EQ(y[8], 2);
  EXPECT_EQ(y[24], 1);
  EXPECT_EQ(y[63], 3);
}

// Bytes of address space of this process.
size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Device, BuffersAreUnmapped) {
#ifdef SOFTMETAL_SANITIZED
  GTEST_SKIP() << "a sanitizer maps memory of its own";
#endif
  Gpu gpu;
  const auto make = [&] {
    for (int i = 0; i < 64; ++i) NS::TransferPtr(gpu.device->newBuffer(16 << 20, MTL::ResourceStorageModePrivate));
  };
  make();
  const size_t before = mapped_bytes();
  make();
  EXPECT_LT(mapped_bytes(), before + (256 << 20)) << "a gigabyte was asked for and given back";
}

TEST(Heaps, HandOutWhatFits) {
  Gpu gpu;
  auto d = NS::TransferPtr(MTL::HeapDescriptor::alloc()->init());
  d->setSize(1024);
  d->setStorageMode(MTL::StorageModePrivate);
  auto heap = NS::TransferPtr(gpu.device->newHeap(d.get()));
  auto a = NS::TransferPtr(heap->newBuffer(500, MTL::ResourceStorageModePrivate));
  auto b = NS::TransferPtr(heap->newBuffer(500, MTL::ResourceStorageModePrivate));
  ASSERT_TRUE(a && b);
  EXPECT_EQ(b->heapOffset(), 512u);
  EXPECT_EQ(a->hazardTrackingMode(), MTL::HazardTrackingModeUntracked);
  EXPECT_EQ(heap->newBuffer(4, MTL::ResourceStorageModePrivate), nullptr);
}

TEST(Counters, CountWhatTheHostAsksFor) {
  Gpu gpu;
  gpu.compile("kernel void k(device float* o) { o[0] = 1; }");
  auto o = gpu.empty(16);
  const auto before = softmetal::counters();
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)}), "");
  const auto after = softmetal::counters();
  EXPECT_EQ(after.submissions - before.submissions, 1u);
  EXPECT_EQ(after.waits - before.waits, 1u);
  EXPECT_EQ(after.dispatches - before.dispatches, 1u);
  EXPECT_EQ(after.compilations - before.compilations, 1u);
  EXPECT_EQ(after.allocations, before.allocations);
}

#if !defined(SOFTMETAL_SANITIZED)
TEST(Traffic, CountsBytesTotalAndUnique) {
  for (auto mode : {softmetal::Mode::count, softmetal::Mode::strict}) {
    Gpu gpu(mode);
    gpu.compile(R"(
kernel void k(device float4* o [[buffer(0)]], device const float4* x [[buffer(1)]], device const uchar* table [[buffer(2)]],
              constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float4 s = 0;
  for (uint r = 0; r < 3; ++r) s += x[i] * table[r];
  threadgroup float4 t[32];
  t[i] = s;
  o[i] = t[i] + x[0];
})");
    auto o = gpu.empty(32 * 16), x = gpu.buffer(std::vector<float>(128, 1.0f)),
         table = gpu.buffer(std::vector<uint8_t>(10, 2)), n = gpu.buffer(std::vector<uint32_t>{3});
    x->setLabel(MTLSTR("x"));
    softmetal::take_traffic();
    ASSERT_EQ(gpu.run("k", {{o.get(), x.get(), table.get(), n.get()}}), "");
    const auto traffic = softmetal::take_traffic();
    ASSERT_EQ(traffic.size(), 1u);
    const softmetal::Traffic& t = traffic[0];
    EXPECT_EQ(t.kernel, "k");
    EXPECT_EQ(t.stored, 32u * 16);
    EXPECT_EQ(t.unique_stored, 32u * 16);
    ASSERT_EQ(t.buffers.size(), 4u);
    EXPECT_EQ(t.buffers[1].label, "x");
    EXPECT_EQ(t.buffers[1].unique_loaded, 128u * 4);
    // What the compiler keeps in a register is not loaded again: at least once, and x[0] by all.
    EXPECT_GE(t.buffers[1].loaded, 2u * 128 * 4);
    EXPECT_LE(t.buffers[1].loaded, 4u * 128 * 4);
    EXPECT_EQ(t.buffers[2].unique_loaded, 3u);
    EXPECT_EQ(t.buffers[3].loaded, 0u);
  }
}
#endif

TEST(LibraryFiles, AreMadeByTheTool) {
  Gpu gpu;
  const std::string stem = testing::TempDir() + "/softmetal_made_" + std::to_string(getpid());
  std::ofstream(stem + ".h") << "#define VALUE 7\n";
  std::ofstream(stem + ".metal") << "#include \"softmetal_made_" << getpid() << ".h\"\n"
                                 << "kernel void k(device float* o) { o[0] = VALUE * FACTOR; }\n";
  const std::string library = stem + ".metallib";
  ASSERT_EQ(std::system(
                (std::string(SOFTMETAL_CC) + " -DFACTOR=6 " + stem + ".metal -o " + library + " > /dev/null").c_str()),
            0);
  NS::Error* error = nullptr;
  gpu.library =
      NS::TransferPtr(gpu.device->newLibrary(NS::String::string(library.c_str(), NS::UTF8StringEncoding), &error));
  ASSERT_TRUE(gpu.library) << error->localizedDescription()->utf8String();
  auto o = gpu.empty(4);
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)}), "");
  EXPECT_EQ(read<float>(o.get())[0], 42.0f);
  for (const char* ending : {".h", ".metal", ".metallib"}) std::remove((stem + ending).c_str());
}

TEST(LibraryFiles, AreReadAndRefused) {
  Gpu gpu;
  NS::Error* error = nullptr;
  EXPECT_EQ(gpu.device->newLibrary(MTLSTR("/nowhere/x.metallib"), &error), nullptr);
  EXPECT_THAT(error->localizedDescription()->utf8String(), testing::HasSubstr("no library at /nowhere/x.metallib"));
  const std::string path = testing::TempDir() + "/softmetal_bad.metallib";
  std::ofstream(path) << "MTLB";
  EXPECT_EQ(gpu.device->newLibrary(NS::URL::fileURLWithPath(NS::String::string(path.c_str(), NS::UTF8StringEncoding)),
                                   &error),
            nullptr);
  EXPECT_THAT(error->localizedDescription()->utf8String(),
              testing::HasSubstr("is not a library of the software Metal device"));
}

}  // namespace
}  // namespace softmetal_test
