#include <gtest/gtest.h>
#include <Metal/Metal.hpp>
#include "softmetal/softmetal.h"

TEST(Softmetal, First) {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  auto device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  const char* src = R"(
#include <metal_stdlib>
using namespace metal;
kernel void add(device float* o [[buffer(0)]], constant uint& n [[buffer(1)]], uint gid [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup float t[64];
  t[gid % 64] = gid * 1.0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (gid < n) o[gid] = simd_sum(float(lane)) + t[63 - gid % 64];
})";
  NS::Error* error = nullptr;
  auto lib = NS::TransferPtr(device->newLibrary(NS::String::string(src, NS::UTF8StringEncoding), nullptr, &error));
  ASSERT_TRUE(lib) << error->localizedDescription()->utf8String();
  auto fn = NS::TransferPtr(lib->newFunction(MTLSTR("add")));
  auto pipe = NS::TransferPtr(device->newComputePipelineState(fn.get(), &error));
  ASSERT_TRUE(pipe) << error->localizedDescription()->utf8String();
  auto queue = NS::TransferPtr(device->newCommandQueue());
  auto buf = NS::TransferPtr(device->newBuffer(128 * 4, MTL::ResourceStorageModeShared));
  auto cb = queue->commandBuffer();
  auto enc = cb->computeCommandEncoder();
  enc->setComputePipelineState(pipe.get());
  enc->setBuffer(buf.get(), 0, 0);
  uint32_t n = 128;
  enc->setBytes(&n, 4, 1);
  enc->dispatchThreadgroups(MTL::Size(2, 1, 1), MTL::Size(64, 1, 1));
  enc->endEncoding();
  cb->commit();
  cb->waitUntilCompleted();
  ASSERT_EQ(cb->status(), MTL::CommandBufferStatusCompleted) << cb->error()->localizedDescription()->utf8String();
  auto* f = static_cast<float*>(buf->contents());
  for (int i = 0; i < 128; ++i) EXPECT_EQ(f[i], 496 + (i / 64) * 64 + 63 - i % 64) << i;
}
