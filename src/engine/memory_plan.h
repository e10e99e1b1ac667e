#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "core/settings.h"
#include "ingot/engine.h"
#include "model/config.h"
#include "model/decoder.h"

namespace ingot {

// Everything a loaded engine will hold, decided before anything is loaded.
struct MemoryPlan : MemoryUse {
  EngineLimits limits;
  KvLayout kv;
  DecoderScratch scratch;
  SamplerLayout sampler;
  OutputLayout output;
  size_t stage_bytes = 0;

  std::string describe() const;  // one line: the parts and the sum
};

// Chooses every size the caller left open so that the whole fits, and refuses what was asked for and does not:
// Error(out_of_memory) with the numbers, Error(bad_call) for a limit that contradicts another.
MemoryPlan plan_memory(const ModelConfig& config, const ModelShare& share, const EngineOptions& options,
                       const Settings& settings, const Backend& device, uint64_t weight_bytes);

}  // namespace ingot
