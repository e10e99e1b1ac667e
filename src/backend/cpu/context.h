#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/sampling.h"
#include "collective/group.h"
#include "core/threads.h"
#include "step/view.h"

namespace ingot::cpu {

struct Weight {  // one of the two
  PackedMatrix matrix;
  std::vector<float> vector;
};

// What the operations of a device work on.
struct Context {
  const Kernels& kernels;
  std::vector<Weight> weights;  // by WeightId
  Pages scratch;                // activations
  Pages work;                   // that every operation uses anew
  std::unique_ptr<KvCache> cache;
  Pages host_blocks;  // [blocks][layers][K, V] as the cache has them
  std::unique_ptr<Attention> attention;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<Peers> group;   // the ranks that share its layers
  std::unique_ptr<Peers> stages;  // those with the same share of each stage
  Group* all = nullptr;           // all of them

  const PackedMatrix& matrix(WeightId id) const { return weights[static_cast<size_t>(id.index)].matrix; }
  // nullptr when the weight is absent.
  const float* vector(WeightId id) const { return id ? weights[static_cast<size_t>(id.index)].vector.data() : nullptr; }
  float* floats(Region region) const { return reinterpret_cast<float*>(scratch.data() + region.offset); }
  int32_t* words(Region region) const { return reinterpret_cast<int32_t*>(scratch.data() + region.offset); }
};

// A step while it runs.
struct RunningStep {
  StepView view;
  const AttentionTasks* attention_tasks = nullptr;
  uint64_t number = 0;  // counts steps
  const OutputLayout* layout = nullptr;
  std::byte* output = nullptr;
  StepTimes times;  // the first worker's
};

// What each worker of a job has.
struct Job {
  const Context& device;
  RunningStep& step;
  Worker& worker;
};

}  // namespace ingot::cpu
