#include "backend/metal/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace ingot::metal {

void Profile::add(const std::vector<Timed>& dispatches) {
  ++steps_;
  for (const Timed& timed : dispatches) {
    Line& line = lines_[timed.kernel];
    ++line.dispatches;
    line.weight_bytes += timed.weight_bytes;
    line.seconds += timed.commands->GPUEndTime() - timed.commands->GPUStartTime();
  }
}

std::string Profile::table() const {
  if (lines_.empty()) return {};
  std::vector<std::pair<std::string, Line>> lines(lines_.begin(), lines_.end());
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double all = 0;
  for (const auto& [name, line] : lines) all += line.seconds;
  std::string text = fmt::format("{:<40} {:>10} {:>11} {:>6} {:>14} {:>9}\n", "kernel", "dispatches", "GPU ms", "share",
                                 "weights MB", "GB/s");
  for (const auto& [name, line] : lines)
    text +=
        fmt::format("{:<40} {:>10} {:>11.3f} {:>5.1f}% {:>14.2f} {:>9.1f}\n", name, line.dispatches, line.seconds * 1e3,
                    all > 0 ? 100 * line.seconds / all : 0.0, static_cast<double>(line.weight_bytes) / 1e6,
                    line.seconds > 0 ? static_cast<double>(line.weight_bytes) / line.seconds / 1e9 : 0.0);
  return text + fmt::format("{} steps, {:.3f} ms of GPU time\n", steps_, all * 1e3);
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
