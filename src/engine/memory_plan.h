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
  static constexpr uint64_t kReserve = 256ull << 20;  // left to the system and to this process's other needs

  EngineLimits limits;
  KvLayout kv;
  DecoderScratch scratch;
  SamplerLayout sampler;
  OutputLayout output;
  size_t stage_bytes = 0;

  std::string describe() const;  // one line: the parts and the sum
};

// Chooses every size the caller left open so that the whole fits `available` bytes (0: any will do), and refuses what
// was asked for and does not: Error(out_of_memory) with the numbers, Error(bad_call) for a limit that contradicts
// another.
MemoryPlan plan_memory(const ModelConfig& config, const ModelShare& share, const EngineOptions& options,
                       const Settings& settings, const Backend& device, uint64_t weight_bytes, uint64_t available);

}  // namespace ingot
