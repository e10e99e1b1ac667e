#include "engine/follower.h"

#include <cstring>
#include <vector>

#include "engine/loader.h"
#include "engine/ranks.h"

namespace ingot {

void follow(EngineOptions options) {
  Group& group = *options.group;
  if (!hear_options(group, options)) return;
  LoadedModel model;
  try {
    model = load_model(options);
  } catch (const AgreedError&) {
    return;
  }
  bool in_flight[2] = {false, false};
  for (;;) {
    const std::vector<std::byte> message = group.hear();
    if (message.empty()) break;
    StagedStep step;
    std::memcpy(&step, message.data(), sizeof step);
    if (in_flight[step.ring]) model.device->wait(step.ring);
    std::memcpy(model.device->stage(step.ring).data(), message.data() + sizeof step, step.bytes);
    model.device->begin(step);
    model.decoder->encode(step, *model.device);
    model.device->submit();
    in_flight[step.ring] = true;
  }
}

}  // namespace ingot
