// Compiles against Apple's metal-cpp and against the software device's headers.
#include <Metal/Metal.hpp>

#include "softmetal/audit.h"

void sample(MTL::Device* device, MTL::Library* library, MTL::CommandQueue* queue, MTL::Buffer* buffer) {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  NS::Error* error = nullptr;
  auto constants = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  const unsigned head_size = 64;
  constants->setConstantValue(&head_size, MTL::DataTypeUInt, NS::UInteger(0));
  auto function = NS::TransferPtr(library->newFunction(MTLSTR("attend"), constants.get(), &error));
  auto pipeline = NS::TransferPtr(device->newComputePipelineState(function.get(), &error));
  softmetal::StepScope step;
  MTL::CommandBuffer* commands = queue->commandBuffer();
  {
    softmetal::EncodeScope encoding;
    MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
    encoder->setComputePipelineState(pipeline.get());
    encoder->setBuffer(buffer, 0, 0);
    encoder->setBytes(&head_size, sizeof head_size, 1);
    encoder->setThreadgroupMemoryLength(1024, 0);
    encoder->dispatchThreadgroups(MTL::Size::Make(1, 1, 1), MTL::Size::Make(32, 1, 1));
    encoder->memoryBarrier(MTL::BarrierScopeBuffers);
    encoder->dispatchThreads(MTL::Size(100, 1, 1), MTL::Size(32, 1, 1));
    encoder->dispatchThreadgroups(buffer, 16, MTL::Size(32, 1, 1));
    encoder->endEncoding();
    MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
    blit->copyFromBuffer(buffer, 0, buffer, 64, 64);
    blit->fillBuffer(buffer, NS::Range::Make(0, 64), 0);
    blit->endEncoding();
  }
  commands->addCompletedHandler([](MTL::CommandBuffer* done) { (void)done->GPUEndTime(); });
  commands->commit();
  commands->waitUntilCompleted();
  if (commands->status() == MTL::CommandBufferStatusError)
    (void)commands->error()->localizedDescription()->utf8String();
}
