#pragma once

#include <optional>
#include <string>

#include "backend/metal/encoder.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/step.h"

// The small operations: each encodes one dispatch unless it says otherwise (prepare_blocks one a layer).
namespace ingot::metal {

// A reason why the kernels cannot run a model, or nothing. `bfloat`: the device has bf16.
std::optional<std::string> decline_model(const ModelConfig& config, const KvLayout& kv, bool bfloat);

void norm(Context& context, const NormOp& op, BufferView weight, BufferView bias);

// The step's rows to their experts, in two dispatches; the sum of what those give. See RouteOp and ExpertSumOp.
void route(Context& context, const RouteOp& op);
void expert_sum(Context& context, const ExpertSumOp& op);

// inv_freq: f32 [pairs]
void rope_table(Context& context, const StepView& input, BufferView inv_freq, float factor, BufferView out);

void gather_rows(Context& context, const StepView& input, const GatherRowsOp& op);

// What a step's `rows` rows gave, `logits_rows` of them whole logits, from the GPU's outputs to the shared ones.
void copy_outputs(MTL::BlitCommandEncoder* blit, const OutputLayout& out, MTL::Buffer* from, MTL::Buffer* to,
                  size_t rows, size_t logits_rows);

// Zeroes and copies blocks in every layer, before anything else of the step.
void prepare_blocks(Context& context, const StepView& input, const KvCache& cache);

}  // namespace ingot::metal
