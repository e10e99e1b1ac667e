#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/sampling.h"
#include "backend/cpu/step.h"
#include "core/threads.h"
#include "model/config.h"

// The small operations of a step. Each is called by every worker of a job alike, and is complete on return.
namespace ingot::cpu {

// A reason why the kernels cannot run a model, or nothing.
std::optional<std::string> decline_model(const ModelConfig& config, const KvLayout& kv);

// Zeroing, then copies, then sampler resets: what happens before a step.
void prepare_step(const StepView& view, KvCache* cache, Sampler* sampler, Worker& worker);

struct EmbedCall {
  const PackedMatrix* table = nullptr;      // [vocab, hidden]
  const PackedMatrix* positions = nullptr;  // optional [max_position, hidden]
  float scale = 1.0f;
  float* out = nullptr;      // [T, hidden]
  float* scratch = nullptr;  // [workers, hidden], with a position table only
};
void embed(const EmbedCall& call, const StepView& view, const Sampler* sampler, uint64_t step, Worker& worker);

struct RopeTableCall {
  const float* inv_freq = nullptr;  // [pairs]
  int64_t pairs = 0;
  float factor = 1.0f;
  float* out = nullptr;  // [T, pairs, 2]
};
void rope_table(const RopeTableCall& call, const StepView& view, Worker& worker);

struct NormCall {
  NormKind kind = NormKind::rms;
  float eps = 0.0f;
  int64_t rows = 0, dim = 0;
  const float* in = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  float* scratch = nullptr;  // [workers, dim]: out += the result; nullptr: out = the result
};
void norm(const NormCall& call, const Kernels& kernels, Worker& worker);

struct GatherCall {
  int64_t dim = 0;
  const float* in = nullptr;  // [T, dim]
  float* out = nullptr;       // [R, dim]
};
void gather_rows(const GatherCall& call, const StepView& view, Worker& worker);

}  // namespace ingot::cpu
