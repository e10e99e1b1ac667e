#pragma once

#include "backend/metal/encoder.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/step_input.h"

// The small operations: each encodes one dispatch (prepare_blocks one a layer).
namespace ingot::metal {

void norm(Context& context, const NormOp& op, BufferView weight, BufferView bias);

// inv_freq: f32 [pairs]
void rope_table(Context& context, const StepInput& input, BufferView inv_freq, float factor, BufferView out);

void gather_rows(Context& context, const StepInput& input, const GatherRowsOp& op);

// Zeroes and copies blocks in every layer, before anything else of the step.
void prepare_blocks(Context& context, const StepInput& input, const KvCache& cache);

}  // namespace ingot::metal
