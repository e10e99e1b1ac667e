#pragma once

#include "backend/backend.h"
#include "ingot/engine.h"
#include "model/config.h"

namespace ingot {

// What is behind an engine, for tools and tests; running steps needs none of it.
struct EngineInternals {
  static Backend& device(Engine& engine);
  static const ModelConfig& config(const Engine& engine);
};

}  // namespace ingot
