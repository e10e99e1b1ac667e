#pragma once

#include <memory>
#include <vector>

#include "backend/op.h"
#include "ingot/engine.h"
#include "model/open_model.h"

namespace ingot {

// The embedding that a head reads: its own, or that of the model it guesses for (EngineOptions::head_of), row by row
// from the files of either. Throws declined where it fits no model, or not this one.
std::shared_ptr<const RowTable> open_head_embedding(const ModelFiles& head, const EngineOptions& options);

// The layers whose input a model gives to a head, in the order in which that reads them.
std::vector<int> state_layers(const EngineOptions& options, int64_t layers);
// Whether those are the last's, normed: that takes memory.
bool gives_final_states(const ModelConfig& config, const EngineOptions& options);
// Throws declined where a model cannot.
void check_gives_states(const ModelConfig& config, const EngineOptions& options);

}  // namespace ingot
