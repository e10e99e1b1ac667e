#pragma once

#include <string>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "ingot/engine.h"
#include "model/weights.h"

namespace ingot {

// For EngineOptions::packed_cache. The state of the model's files, before any of them is opened; empty: weights are not
// kept. Throws Error(bad_call) for a word that is none of its own.
std::string state_for_packed_cache(const EngineOptions& options);

// Tells a device, before it loads, which weights it will be given and where it finds and keeps them packed. A line on
// stderr where it cannot.
void keep_packed(const EngineOptions& options, const std::string& state, const Checkpoint& checkpoint,
                 const CheckedWeights& weights, Backend& device);

}  // namespace ingot
