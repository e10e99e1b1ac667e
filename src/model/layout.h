#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace ingot {

// How the tensors of a checkpoint are called and stored.
enum class NameStyle { hugging_face, gguf };

// The weights of one model on a device. Absent ones (no bias, say) stay invalid.
struct LayerWeights {
  WeightId attention_norm, attention_norm_bias;  // [hidden]
  WeightId head_norm;                            // of EAGLE-3: [hidden]; the qkv of these has 2 hidden columns
  WeightId qkv, qkv_bias;                        // [(heads + 2 kv_heads) * head_size, hidden]: q over k over v
  WeightId q_norm, k_norm;                       // [head_size]
  WeightId output, output_bias;                  // [hidden, heads * head_size]
  WeightId attention_post_norm;                  // [hidden]
  WeightId mlp_norm, mlp_norm_bias;              // [hidden]
  WeightId gate, gate_bias;                      // [ffn, hidden]
  WeightId up, up_bias;                          // [ffn, hidden]
  WeightId down, down_bias;                      // [hidden, ffn]
  WeightId mlp_post_norm;                        // [hidden]
  WeightId router;                               // [experts, hidden]
  WeightId expert_gate, expert_up;               // [experts][expert_ffn, hidden]
  WeightId expert_down;                          // [experts][hidden, expert_ffn]
};

struct ModelWeights {
  WeightId embedding;                    // [vocab, hidden]
  WeightId positions;                    // [max_position, hidden]
  WeightId head;                         // [vocab, hidden]; the embedding itself when tied
  WeightId final_norm, final_norm_bias;  // [hidden]
  WeightId inv_freq, local_inv_freq;     // [rope_dims / 2]
  WeightId read_states;                  // of a head: [hidden, floats that it reads]; of MTP layers [hidden, 2 hidden]
  WeightId states_norm, token_norm;      // of MTP layers: [hidden]
  std::vector<LayerWeights> layers;
};

// Those from `begin` on, before `end`.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// One tensor of a checkpoint that a weight is made of.
struct TensorNeed {
  std::string name;
  std::vector<int64_t> shape;         // as stored: [rows, cols], [rows], or [groups, rows, cols]
  int64_t interleaved_head_size = 0;  // see MatrixPart
  // What is taken of it, the rows of all groups one after the other; nothing: all of them.
  std::optional<Range> rows, cols;
};

// One weight on the device: what it is made of, and where its id goes. Weights of a layer go to a member of
// LayerWeights, the others to one of ModelWeights.
struct WeightNeed {
  std::vector<TensorNeed> parts;  // stacked along the rows
  int64_t layer = -1;             // -1: of the whole model
  WeightId LayerWeights::* layer_slot = nullptr;
  WeightId ModelWeights::* model_slot = nullptr;
  bool vector = false;
  bool exact = false;           // never quantized: vectors, routers, tables of positions
  int64_t groups = 1;           // experts stacked in one matrix
  std::vector<int64_t> slices;  // MatrixSpec's
  float offset = 0;             // vectors: added to every value,
  float factor = 1;             // which is then multiplied by this

  std::string name() const;  // for errors and profiles
};

struct ModelLayout {
  std::vector<WeightNeed> weights;
  std::vector<std::string> ignored;             // tensors that may be there and are not needed,
  std::vector<std::string> ignored_beginnings;  // and those whose names begin so
};

// Every tensor a model of this configuration has. Looks at the configuration alone.
ModelLayout model_layout(const ModelConfig& config, NameStyle style);

}  // namespace ingot
