#pragma once

#include <memory>

#include "backend/backend.h"
#include "engine/memory_plan.h"
#include "ingot/engine.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/open_model.h"

namespace ingot {

// A model on a device, ready to step.
struct LoadedModel {
  std::shared_ptr<Group> group;  // that it is shared by; null: it is alone
  EngineOptions options;
  ModelConfig config;
  MemoryPlan plan;
  std::unique_ptr<Backend> device;
  std::unique_ptr<Decoder> decoder;
  std::shared_ptr<const RowTable> embedded;  // of a head: rows of its tokens, which the host stages
};

// The model that the options name, with dummy weights where they say so.
ModelFiles open_model(const EngineOptions& options);

// Opens, checks, declines, plans, and only then loads: nothing is allocated for a model that will not run. Ranks of a
// group do it together.
LoadedModel load_model(const EngineOptions& options);

// The configuration's numbers, for those who use the engine.
ModelInfo describe(const ModelConfig& config);

// The same checks without loading. Throws what load_model would throw.
struct ModelInspection {
  ModelConfig config;
  ModelShare share;
  MemoryPlan plan;
};
// `rank` of options.ranks(), on the machines of the stages; none are given: on machines like this one.
ModelInspection inspect_model(const EngineOptions& options, int rank = 0, std::span<const StageHost> hosts = {});

}  // namespace ingot
