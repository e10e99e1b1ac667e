#include "backend/metal/profile.h"

#include "core/error.h"

namespace ingot::metal {

void add_step(Profile& profile, const std::vector<TimedDispatch>& dispatches) {
  for (const TimedDispatch& timed : dispatches)
    profile.add(timed.kernel, {.dispatches = 1,
                               .seconds = timed.commands->GPUEndTime() - timed.commands->GPUStartTime(),
                               .bytes = timed.weight_bytes});
  profile.end_step();
}

void start_capture(MTL::CommandQueue* queue) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  const auto descriptor = NS::TransferPtr(MTL::CaptureDescriptor::alloc()->init());
  descriptor->setCaptureObject(queue);
  descriptor->setDestination(MTL::CaptureDestinationGPUTraceDocument);
  descriptor->setOutputURL(NS::URL::fileURLWithPath(MTLSTR("ingot-step.gputrace")));
  NS::Error* error = nullptr;
  if (!MTL::CaptureManager::sharedCaptureManager()->startCapture(descriptor.get(), &error))
    throw_error(ErrorKind::device,
                "VLLM_METAL_CAPTURE_NEXT_STEP: no GPU trace can be taken ({}); set METAL_CAPTURE_ENABLED=1 on a Mac",
                error != nullptr ? error->localizedDescription()->utf8String() : "no reason given");
}

}  // namespace ingot::metal
