#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/kinds.h"
#include "formats/packed_format.h"
#include "ingot/step.h"

namespace ingot {

// How rotary frequencies are stretched past the trained context. Every kind ends as one table of inverse frequencies
// and one attention factor, see model/rope.h.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: ramp bounds rounded to whole dimensions
  double mscale = 0.0;            // yarn; both given: attention factor from their ratio
  double mscale_all_dim = 0.0;    // yarn
  double attention_factor = 0.0;  // multiplies cos and sin; 0: derived from kind and factor
  int64_t original_max_position = 0;
  std::vector<float> factors;  // GGUF's rope_freqs.weight: inv_freq is divided by these; empty: none
};

// What may differ from layer to layer.
struct LayerConfig {
  enum class Rope : uint8_t { main, local, none };
  Rope rope = Rope::main;  // which of the model's rotary tables; none: the layer sees no positions
  int64_t window = 0;      // > 0: attention reaches back this many positions, the row's own included
  bool experts = false;    // the MLP is a mixture of experts
};

// Everything the decoder needs to know about a model; the families differ only in these values.
struct ModelConfig {
  std::string architecture;  // "llama": canonical family name
  std::string name;          // for people

  int64_t hidden = 0;  // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;  // query heads
  int64_t kv_heads = 0;
  int64_t head_size = 0;     // heads * head_size need not equal hidden
  int64_t ffn = 0;           // width of the MLP (of the dense layers)
  int64_t vocab = 0;         // rows of the embedding
  int64_t max_position = 0;  // longest sequence the model knows

  NormKind norm = NormKind::rms;
  float norm_eps = 1e-6f;
  ActivationKind activation = ActivationKind::silu;
  double rope_theta = 10000.0;
  int64_t rope_dims = 0;  // leading dims of a head that rotate
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool attention_bias = false;  // q, k and v have biases
  bool output_bias = false;     // the projection after attention has one
  bool mlp_bias = false;
  int64_t sliding_window = 0;  // of the layers that have one; 0: attend to everything

  // What only some families have.
  double local_rope_theta = 0;     // of the layers with LayerConfig::Rope::local, unscaled; 0: there are none
  bool learned_positions = false;  // a table of [max_position, hidden] is added to the embedding
  bool gated_mlp = true;           // false: down(act(up(x)))
  bool qk_norm = false;            // RMS norm of every q and k head before rotation
  bool sandwich_norms = false;     // attention and MLP are normed again before they join the residual stream
  float norm_weight_offset = 0;    // added to stored norm weights: files of Gemma in safetensors hold w of (1 + w)
  float embedding_scale = 1;
  float attention_scale = 0;  // of q . k; 0: 1 / sqrt(head_size)
  float residual_scale = 1;   // of what a layer adds to the residual stream; 1 where there are learned positions
  float logit_divisor = 1;
  int64_t experts = 0;  // 0: dense everywhere
  int64_t experts_per_token = 0;
  int64_t expert_ffn = 0;            // width of one expert
  bool norm_expert_weights = false;  // the weights of a token's experts are scaled to sum to 1

  std::vector<LayerConfig> per_layer;  // empty: all layers are LayerConfig{.window = sliding_window}
  LayerConfig layer(int64_t index) const {
    if (!per_layer.empty()) return per_layer[static_cast<size_t>(index)];
    return {.rope = LayerConfig::Rope::main, .window = sliding_window, .experts = experts > 0};
  }

  int32_t bos_id = -1;           // -1: none
  std::vector<int32_t> eos_ids;  // any of them ends a text
  SamplingAdvice sampling;
  PackedFormat packed;        // safetensors: how the matrices are stored
  std::string weight_format;  // e.g. "q4_1", "bf16": what most of the weights are, for people
  Pooling pooling;            // how its makers want texts made into vectors; none: they do not say
  bool has_head = true;       // false: the files have no tensor that makes logits of states, nor is it tied
  bool reranks = false;       // it was trained to answer yes or no to a query and a document
  std::string query_prompt, document_prompt;  // ModelInfo's

  int64_t mtp_layers = 0;  // behind its own: they guess, as a head (mtp_head()), and are no part of the model

  // A head: it guesses the tokens of another model from its hidden states (families/eagle3.cc, families/mimo.cc).
  // `vocab` is what it guesses among.
  struct Head {
    enum class Kind : uint8_t { none, eagle3, mtp };
    Kind kind = Kind::none;
    int64_t reads = 0;                  // floats of the model's states that it reads of a row
    int64_t vocab = 0;                  // the model's
    bool norm_before_residual = false;  // what joins the residual stream is normed already
    std::vector<int> state_layers;      // of the model; empty: the second, the middle and the third from the end
    std::vector<int32_t> guessed_ids;   // the model's token of each of its own; empty: the same
    explicit operator bool() const { return kind != Kind::none; }
  };
  Head head;
};

// The first of the MTP layers of a model, by itself. It reads the model's final states, normed.
ModelConfig mtp_head(ModelConfig model);

}  // namespace ingot
