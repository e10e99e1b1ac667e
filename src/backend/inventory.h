#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_layout.h"
#include "core/dtype.h"
#include "step/output.h"
#include "step/staged.h"

namespace ingot {

// A piece of the device's scratch memory (activations), planned once at load. The host never has a pointer to it.
struct Region {
  size_t offset = 0;  // bytes from the start of scratch, 64-byte aligned
  size_t bytes = 0;
};

// A weight on the device. -1: absent (an optional bias, say).
struct WeightId {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
};

struct WeightSize {
  int64_t rows = 0;  // 0: a vector
  int64_t cols = 0;
  size_t bytes = 0;  // on the device
};

// The sampler's state: for each slot the tokens of its sequence so far.
struct SamplerLayout {
  int32_t slots = 0;
  int64_t max_tokens = 0;  // history a slot can hold
  int64_t vocab = 0;
};

struct StepTimes {
  double run_us = 0;   // device time of the step
  double gap_us = 0;   // idle since the previous step ended; 0 for the first
  double move_us = 0;  // of run_us: copies to and from host blocks, where they come before the rows
  uint64_t weight_bytes = 0, kv_bytes = 0;
  uint64_t wire_bytes = 0, wire_messages = 0;  // sent to other ranks
  uint64_t collectives = 0;                    // operations of all ranks together
};

// What a device has, and the step it is about to run: what every operation is checked against before the device sees
// it. All checks throw Error(internal).
struct Inventory {
  std::string who;                // "cpu", "gpu": how its errors begin
  DType activation = DType::f32;  // of activations
  std::vector<WeightSize> weights;
  size_t scratch_bytes = 0;
  std::optional<KvLayout> kv;
  int64_t host_blocks = 0;
  std::optional<SamplerLayout> sampler;
  OutputLayout output;

  StagedStep step;
  const std::byte* stage = nullptr;  // its arrays; none in a rehearsal
  StepTimes times;                   // operations add the bytes that they read

  const WeightSize& weight(WeightId id) const;
  const WeightSize& matrix(WeightId id, int64_t cols = 0, int64_t rows = 0) const;  // of this size; 0: of any
  int64_t vector(WeightId id) const;                                                // its length
  void vector(WeightId id, int64_t size) const;                                     // of this length, or absent

  void bytes(Region region, size_t bytes) const;
  void words(Region region, int64_t n) const { bytes(region, static_cast<size_t>(n) * 4); }  // f32 or int32
  void activations(Region region, int64_t n) const { bytes(region, dtype_bytes(activation, static_cast<size_t>(n))); }
  void elements(Region region, int64_t n, bool f32) const { f32 ? words(region, n) : activations(region, n); }
  void blocks() const;                         // there is a KV cache, and host blocks if the step has to do with any
  const KvLayout& layer(int64_t layer) const;  // of it
  void attention(int64_t layer, int64_t kv_heads, int64_t head_size) const;
  void samples() const;
  void vectors(int64_t count, int64_t dim) const;  // fit the outputs
  void states(int64_t width) const;                // of the step's rows fit the outputs

  // Adds K and V that sequences [begin, end) look at, once each. window > 0: a row sees so many positions, its own
  // included.
  void read_cache(int64_t window, int32_t begin, int32_t end);
};

}  // namespace ingot
