#pragma once

#include <string>

#include "backend/backend.h"
#include "engine/memory_plan.h"
#include "ingot/engine.h"

namespace ingot {

// Counts up with every change of what some device computes, be it in the last bit: blocks of before are then not found.
inline constexpr int kNumerics = 5;

// What the bytes of a block depend on beside its tokens and those before it: Engine::identity().
std::string cache_identity(const EngineOptions& options, const KvLayout& kv, const DeviceInfo& device,
                           const FileNotes& notes, int numerics = kNumerics);

}  // namespace ingot
