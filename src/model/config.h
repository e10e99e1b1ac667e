#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

enum class NormKind { rms, layer };
enum class ActivationKind { silu, gelu_tanh, gelu };

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

// Everything the decoder needs to know about a model; the families differ only in these values.
struct ModelConfig {
  std::string architecture;  // "llama": canonical family name
  std::string name;          // for people

  int64_t hidden = 0;  // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;  // query heads
  int64_t kv_heads = 0;
  int64_t head_size = 0;     // heads * head_size need not equal hidden
  int64_t ffn = 0;           // width of the MLP
  int64_t vocab = 0;         // rows of the embedding
  int64_t max_position = 0;  // longest sequence the model knows

  NormKind norm = NormKind::rms;
  float norm_eps = 1e-5f;
  ActivationKind activation = ActivationKind::silu;
  double rope_theta = 10000.0;
  int64_t rope_dims = 0;  // leading dims of a head that rotate
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool attention_bias = false;  // q, k, v (and o where present) have biases
  bool mlp_bias = false;
  int64_t sliding_window = 0;  // 0: attend to everything

  int32_t bos_id = -1;           // -1: none
  std::vector<int32_t> eos_ids;  // any of them ends a text
  std::string weight_format;     // e.g. "q4_1", "bf16": what most of the weights are, for people
};

}  // namespace ingot
