#pragma once

#include <string>

#include "backend/backend.h"
#include "engine/memory_plan.h"
#include "ingot/engine.h"

namespace ingot {

// Counts up with every change of what some device computes, be it in the last bit, weights that are quantized or
// unpacked while they are loaded included: blocks of a prefix cache and packed weights of before are then not found.
inline constexpr int kNumerics = 5;

// What the bytes of a block depend on beside its tokens and those before it: Engine::identity().
std::string cache_identity(const EngineOptions& options, const KvLayout& kv, const DeviceInfo& device,
                           const FileNotes& notes, int numerics = kNumerics);

// Names, numbers, sizes and times of the files that the model is loaded from. Whoever changes one of them changes this:
// the time of the last change cannot be set. Made before a file is opened and once more when all are read, it says that
// what was read is of one state. Waits some milliseconds where a file was changed just now. Throws Error(io).
std::string files_state(const EngineOptions& options);

}  // namespace ingot
