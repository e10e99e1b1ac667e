// What the software device costs: a switch between threads, an operation of a simdgroup, an encoded dispatch, and the
// matrix-vector products of a small quantized model. Times of this CPU; they say nothing about a GPU.
#include <Metal/Metal.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "softmetal/softmetal.h"

namespace {

const char* kSource = R"(
#include <metal_stdlib>
using namespace metal;

kernel void idle(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = i; }

kernel void barriers(device float* o [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  for (uint k = 0; k < n; ++k) threadgroup_barrier(mem_flags::mem_none);
  o[i] = n;
}

kernel void sums(device float* o [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float s = i;
  for (uint k = 0; k < n; ++k) s = simd_sum(s) * 0.03125f;
  o[i] = s;
}

struct block_q4_1 { half d, m; uchar q[16]; };
constant uint K [[function_constant(0)]];

// y[N] = W[N, K] x[K]; a simdgroup takes 4 rows, a lane a block of 32 weights at a time.
kernel void gemv_q4_1(device const block_q4_1* w [[buffer(0)]], device const float* x [[buffer(1)]],
                      device float* y [[buffer(2)]], constant uint& n [[buffer(3)]],
                      uint group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                      uint sgs [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint blocks = K / 32, row = (group * sgs + sg) * 4;
  if (row >= n) return;
  float sum[4] = {0, 0, 0, 0};
  for (uint b = lane; b < blocks; b += 32) {
    device const float* xb = x + b * 32;
    float total = 0;
    for (uint i = 0; i < 32; ++i) total += xb[i];
    for (uint r = 0; r < 4; ++r) {
      device const block_q4_1& wb = w[(row + r) * blocks + b];
      float s = 0;
      for (uint i = 0; i < 16; ++i) s += float(wb.q[i] & 15) * xb[i] + float(wb.q[i] >> 4) * xb[i + 16];
      sum[r] += float(wb.d) * s + float(wb.m) * total;
    }
  }
  for (uint r = 0; r < 4; ++r) {
    float s = simd_sum(sum[r]);
    if (lane == 0) y[row + r] = s;
  }
}
)";

struct Bench {
  NS::SharedPtr<NS::AutoreleasePool> pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  NS::SharedPtr<MTL::Device> device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  NS::SharedPtr<MTL::CommandQueue> queue = NS::TransferPtr(device->newCommandQueue());
  NS::SharedPtr<MTL::Library> library;

  Bench() {
    NS::Error* error = nullptr;
    library = NS::TransferPtr(device->newLibrary(NS::String::string(kSource, NS::UTF8StringEncoding), nullptr, &error));
    if (!library) fail(error);
  }
  [[noreturn]] void fail(NS::Error* error) {
    std::fprintf(stderr, "error: %s\n", error ? error->localizedDescription()->utf8String() : "unknown");
    std::exit(1);
  }
  NS::SharedPtr<MTL::ComputePipelineState> pipeline(const char* name, uint32_t k = 0) {
    NS::Error* error = nullptr;
    auto constants = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
    constants->setConstantValue(&k, MTL::DataTypeUInt, NS::UInteger{0});
    auto function = NS::TransferPtr(
        library->newFunction(NS::String::string(name, NS::UTF8StringEncoding), constants.get(), &error));
    if (!function) fail(error);
    auto state = NS::TransferPtr(device->newComputePipelineState(function.get(), &error));
    if (!state) fail(error);
    return state;
  }
  // Seconds on the device, the least of five.
  template <class F>
  double time(F encode) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      auto inner = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
      MTL::CommandBuffer* commands = queue->commandBuffer();
      MTL::ComputeCommandEncoder* e = commands->computeCommandEncoder();
      encode(e);
      e->endEncoding();
      commands->commit();
      commands->waitUntilCompleted();
      if (commands->error()) fail(commands->error());
      best = std::min(best, commands->GPUEndTime() - commands->GPUStartTime());
    }
    return best;
  }
};

}  // namespace

int main() {
  softmetal::Options options = softmetal::options_from_environment();
  if (!std::getenv("SOFTMETAL_MODE")) options.mode = softmetal::Mode::fast;
  softmetal::set_options(options);
  Bench bench;
  auto out = NS::TransferPtr(bench.device->newBuffer(1 << 22, MTL::ResourceStorageModeShared));

  const uint32_t rounds = 2000;
  auto one_group = [&](MTL::ComputePipelineState* state, uint32_t threads) {
    return bench.time([&](MTL::ComputeCommandEncoder* e) {
      e->setComputePipelineState(state);
      e->setBuffer(out.get(), 0, 0);
      e->setBytes(&rounds, 4, 1);
      e->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(threads, 1, 1));
    });
  };
  auto barriers = bench.pipeline("barriers"), sums = bench.pipeline("sums"), idle = bench.pipeline("idle");
  for (uint32_t threads : {32u, 256u, 1024u}) {
    std::printf("threadgroup_barrier, %4u threads: %6.1f ns a thread\n", threads,
                one_group(barriers.get(), threads) / rounds / threads * 1e9);
  }
  std::printf("simd_sum: %.1f ns a lane, %.2f us a simdgroup\n", one_group(sums.get(), 32) / rounds / 32 * 1e9,
              one_group(sums.get(), 32) / rounds * 1e6);
  const double plain = bench.time([&](MTL::ComputeCommandEncoder* e) {
    e->setComputePipelineState(idle.get());
    e->setBuffer(out.get(), 0, 0);
    e->dispatchThreads(MTL::Size(1 << 16, 1, 1), MTL::Size(256, 1, 1));
  });
  std::printf("a thread without barriers: %.1f ns\n", plain / (1 << 16) * 1e9);
  constexpr int kDispatches = 1000;
  double encode = 0;
  const double empty = bench.time([&](MTL::ComputeCommandEncoder* e) {
    const double start = softmetal::now();
    for (int i = 0; i < kDispatches; ++i) {
      e->setComputePipelineState(i % 2 ? idle.get() : barriers.get());
      e->setBuffer(out.get(), 0, 0);
      e->setBytes(&i, 4, 1);
      e->dispatchThreadgroups(MTL::Size(0, 1, 1), MTL::Size(32, 1, 1));
    }
    encode = softmetal::now() - start;
  });
  std::printf("a dispatch: %.2f us to encode, %.2f us to execute\n", encode / kDispatches * 1e6,
              empty / kDispatches * 1e6);

  // SmolLM2-135M: 30 layers of q, k, v, o, gate, up, down, then the vocabulary.
  struct Shape {
    uint32_t n, k, count;
  };
  const std::vector<Shape> shapes = {{576, 576, 60}, {192, 576, 60}, {1536, 576, 60}, {576, 1536, 30}, {49152, 576, 1}};
  double step = 0, bytes = 0;
  for (const Shape& s : shapes) {
    if (options.mode != softmetal::Mode::fast && s.n > 192) continue;  // for tiny shapes
    const size_t weight_bytes = size_t{s.n} * s.k / 32 * 20;
    auto w = NS::TransferPtr(bench.device->newBuffer(weight_bytes, MTL::ResourceStorageModeShared));
    auto x = NS::TransferPtr(bench.device->newBuffer(s.k * 4, MTL::ResourceStorageModeShared));
    std::fill_n(static_cast<char*>(w->contents()), weight_bytes, 1);
    std::fill_n(static_cast<float*>(x->contents()), s.k, 1.0f);
    auto state = bench.pipeline("gemv_q4_1", s.k);
    const double t = bench.time([&](MTL::ComputeCommandEncoder* e) {
      e->setComputePipelineState(state.get());
      e->setBuffer(w.get(), 0, 0);
      e->setBuffer(x.get(), 0, 1);
      e->setBuffer(out.get(), 0, 2);
      e->setBytes(&s.n, 4, 3);
      e->dispatchThreadgroups(MTL::Size((s.n + 15) / 16, 1, 1), MTL::Size(128, 1, 1));
    });
    std::printf("gemv_q4_1 %5u x %4u: %8.3f ms, %.2f GB/s of weights\n", s.n, s.k, t * 1e3, weight_bytes / t * 1e-9);
    step += t * s.count;
    bytes += static_cast<double>(weight_bytes) * s.count;
  }
  if (options.mode != softmetal::Mode::fast) return 0;
  std::printf("all products of one token of SmolLM2-135M: %.0f ms, %.2f GB/s\n", step * 1e3, bytes / step * 1e-9);
}
