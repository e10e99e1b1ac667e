#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "ingot/step.h"
#include "model/config.h"
#include "model/share.h"
#include "model/weights.h"

namespace ingot {

// Where the activations of a step lie in scratch memory, for the largest step. Regions that are never alive at the same
// time share memory. Heads, MLP, experts and vocabulary are those of this rank.
struct DecoderScratch {
  Region residual;    // f32 [T, hidden]
  Region sampled;     // f32 [R, hidden]: the residual rows that produce output
  Region rope;        // f32 [T, rope_dims / 2, 2]
  Region local_rope;  // the same for layers with a rotary base of their own
  Region normed;      // activation [T, hidden]: the input of a product; of a head [T, 2 hidden]
  Region attended;    // activation [T, heads * head_size]; where normed is
  Region qkv;         // activation [T, (heads + 2 kv_heads) * head_size]
  Region mlp;         // activation [T, ffn], of experts [pairs, expert_ffn]; where qkv is
  // f32 [T, hidden]: what is normed, or added to that of other ranks, before it joins the residual stream; of experts
  // [pairs, hidden]
  Region projected;
  Region rank_sum;  // f32 [T, hidden]: what this rank's experts give together
  Region router;    // f32 [T, experts]
  // f32 [T, hidden]: what the router reads, so that experts are not chosen by what activations round away. Where those
  // are f32 it is normed.
  Region router_in;
  ExpertRoute route;
  Region logits;      // f32 [R, vocab]
  Region all_logits;  // f32 [R, vocab of all ranks], on the first of several ranks
  Region given;       // of a head: f32 [T, floats that it reads]
  Region embedded;    // f32 [T, hidden]: rows of its tokens
  Region states;      // f32 [T, hidden]: the final states of all rows, where they are pooled or given
  Region kept;        // f32 [slots, hidden]: PoolOp::kept
  int64_t pool_slots = 0;
  size_t bytes = 0;
  // What a decode step of `max_tokens` rows of a dense model, each sampled greedily, must load of these at least: every
  // operand of every operation once.
  uint64_t least_loads = 0;

  static DecoderScratch of(const ModelConfig& config, const ModelShare& share, int64_t max_tokens,
                           int64_t max_sample_rows, DType activation, int64_t pool_slots = 0,
                           bool final_states = false);
};

// What of a model a device looks at to tell whether it can run it, as one of so many ranks.
ModelShape model_shape(const ModelConfig& config, int ranks = 1);

// One transformer for every model family: walks the layers of its stage and encodes a step's operations. The families
// differ in their configuration only.
class Decoder {
 public:
  // `embedding`: where it is no weight (ModelShare::embedding_in_file). `state_layers`: where rows give their states
  // on request, one behind the other; config.layers: what leaves the last, normed.
  Decoder(const ModelConfig& config, const ModelShare& share, ModelWeights weights, const DecoderScratch& scratch,
          Pooling pooling = {}, std::shared_ptr<const RowTable> embedding = nullptr,
          std::vector<int> state_layers = {});

  // Encodes everything between the step's inputs, or what the previous stage sends, and what goes to the next stage, or
  // the step's sampled tokens and pooled vectors.
  void encode(const StagedStep& step, Backend& device) const;

 private:
  // Rows of the residual stream that go through an operation.
  struct Rows {
    int64_t count;
    Region residual;
  };
  void begin(const StagedStep& step, Backend& device) const;
  void end(const StagedStep& step, Backend& device) const;
  void embed(const StagedStep& step, Backend& device) const;
  void read_states(const StagedStep& step, Backend& device) const;
  void norm_beside(int64_t rows, Region left, WeightId left_weight, Region right, WeightId right_weight,
                   Backend& device) const;
  void norm_both(int64_t rows, const LayerWeights& weights, Backend& device) const;
  void read_final_states(const StagedStep& step, Backend& device) const;
  void final_states(const Rows& rows, Backend& device) const;
  void give_states(int64_t column, Region states, Backend& device) const;
  void attention(const StagedStep& step, int64_t layer, Backend& device) const;
  void mlp(int64_t layer, const Rows& rows, Backend& device) const;
  void experts(const LayerWeights& weights, const Rows& rows, Backend& device) const;
  void norm(const Rows& rows, WeightId weight, WeightId bias, Backend& device, Region f32_copy = {}) const;
  void pool(const StagedStep& step, const Rows& rows, Backend& device) const;
  void sample(const StagedStep& step, Backend& device) const;
  // residual += in W^T + bias, normed in between where the family does that.
  void join(const Rows& rows, Region in, WeightId weight, WeightId bias, WeightId post_norm, const char* role,
            Backend& device) const;

  ModelConfig config_;
  ModelShare share_;
  ModelWeights weights_;
  DecoderScratch scratch_;
  Pooling pooling_;
  std::shared_ptr<const RowTable> embedding_;
  std::vector<int> state_layers_;
  bool gives_final_;  // the normed final states are among those that rows give
  float rope_factor_;
  Region stream_;       // the residual stream from the first layer on: of a head that may be what it read, normed
  float residual_eps_;  // of the norms that read the residual stream
};

}  // namespace ingot
