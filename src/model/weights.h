#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "model/config.h"

namespace ingot {

struct ModelLayout;
struct TensorNeed;
struct WeightNeed;

// The weights of one model on a device. Absent ones (no bias, say) stay invalid.
struct LayerWeights {
  WeightId attention_norm, attention_norm_bias;  // [hidden]
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
  std::vector<LayerWeights> layers;
};

// Which tensors a model needs, found in a checkpoint and checked against the configuration before anything is loaded:
// a missing, misshapen or unexpected tensor is one Error(bad_file) that names it.
class WeightPlan {
 public:
  WeightPlan(const Checkpoint& checkpoint, const ModelConfig& config, bool gguf_names);
  ~WeightPlan();

  // Bytes the weights will take on the device.
  size_t device_bytes(const Backend& device) const;
  size_t tensors() const;  // weights on the device

  // Uploads everything, calling `progress(done, total)` in tensors.
  using Progress = std::function<void(size_t done, size_t total)>;
  ModelWeights load(Backend& device, const Progress& progress) const;

 private:
  struct Resolved;

  const TensorView& find_tensor(const TensorNeed& need);
  void resolve(const WeightNeed& need);
  void refuse_leftovers(const ModelLayout& layout, bool gguf_names) const;
  WeightId load_weight(const Resolved& weight, Backend& device) const;
  WeightId load_made(const Resolved& weight, Backend& device) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<Resolved> weights_;
  std::deque<TensorView> views_;  // tensors seen with another shape than the file's
  std::vector<std::string> taken_;
};

}  // namespace ingot
