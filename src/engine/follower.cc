#include "engine/follower.h"

#include <cstring>
#include <vector>

#include "engine/loader.h"
#include "engine/ranks.h"

namespace ingot {

void follow(EngineOptions options, const std::function<void(Backend& device)>& loaded) {
  Group& group = *options.group;
  if (!hear_options(group, options)) return;
  LoadedModel model;
  try {
    model = load_model(options);
  } catch (const AgreedError&) {
    return;
  }
  if (loaded) loaded(*model.device);
  std::vector<bool> in_flight(static_cast<size_t>(model.plan.limits.steps_in_flight));
  for (;;) {
    const std::vector<std::byte> message = group.hear();
    if (message.empty()) break;
    StagedStep step;
    std::memcpy(&step, message.data(), sizeof step);
    if (in_flight[step.ring]) model.device->wait(step.ring);
    std::memcpy(model.device->stage(step.ring).data(), message.data() + sizeof step, step.bytes);
    model.device->begin(step);
    if (step.tokens > 0) model.decoder->encode(step, *model.device);
    model.device->submit();
    in_flight[step.ring] = true;
  }
}

}  // namespace ingot
