#pragma once

#include <functional>

#include "ingot/engine.h"

namespace ingot {

class Backend;

// What a rank of `options.group` other than 0 does: loads its share of the model, runs the steps that rank 0 hands out,
// and returns when the group ends. Where all ranks agree that they cannot run the model it returns too: rank 0 says
// why. Throws Error when this rank cannot go on. `loaded` is called before the first step; it may be empty.
void follow(EngineOptions options, const std::function<void(Backend& device)>& loaded = {});

}  // namespace ingot
