#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "model/config.h"

namespace ingot {

// The weights of one model on a device. Absent ones (no bias, say) stay invalid.
struct LayerWeights {
  WeightId attention_norm;       // [hidden]
  WeightId qkv, qkv_bias;        // [(heads + 2 kv_heads) * head_size, hidden]: q over k over v
  WeightId output, output_bias;  // [hidden, heads * head_size]
  WeightId mlp_norm;             // [hidden]
  WeightId gate, gate_bias;      // [ffn, hidden]
  WeightId up, up_bias;          // [ffn, hidden]
  WeightId down, down_bias;      // [hidden, ffn]
};

struct ModelWeights {
  WeightId embedding;   // [vocab, hidden]
  WeightId head;        // [vocab, hidden]; the embedding itself when tied
  WeightId final_norm;  // [hidden]
  WeightId inv_freq;    // [rope_dims / 2]
  std::vector<LayerWeights> layers;
};

// Which tensors a model needs, found in a checkpoint and checked against the configuration before anything is loaded:
// a missing, misshapen or unexpected tensor is one Error(bad_file) that names it.
class WeightPlan {
 public:
  WeightPlan(const Checkpoint& checkpoint, const ModelConfig& config, bool gguf_names);

  // Bytes the weights will take on the device.
  size_t device_bytes(const Backend& device) const;
  size_t tensors() const { return matrices_.size() + vectors_.size(); }

  // Uploads everything, calling `progress(done, total)` in tensors.
  using Progress = std::function<void(size_t done, size_t total)>;
  ModelWeights load(Backend& device, const Progress& progress) const;

 private:
  struct VectorSpec {
    std::string name;
    std::vector<MatrixPart> parts;  // each [rows]
    int64_t size = 0;
  };
  // Indices into matrices_ and vectors_; -1: absent.
  struct LayerPlan {
    int attention_norm, qkv, qkv_bias, output, output_bias, mlp_norm, gate, gate_bias, up, up_bias, down, down_bias;
  };
  struct Names;

  const TensorView& take(const std::string& name, std::vector<int64_t> shape);
  int matrix(std::string name, std::vector<MatrixPart> parts);
  int vector(std::string name, std::vector<MatrixPart> parts);
  MatrixPart part(const std::string& name, std::vector<int64_t> shape, int64_t interleaved_head_size = 0);
  LayerPlan plan_layer(const Names& names, int64_t index);
  void refuse_leftovers(bool gguf_names) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<MatrixSpec> matrices_;
  std::vector<VectorSpec> vectors_;
  std::vector<std::string> taken_;
  std::vector<LayerPlan> layers_;
  int64_t interleaved_head_size_ = 0;  // of Q and K; 0: plain
  int embedding_ = -1, head_ = -1, final_norm_ = -1;
};

}  // namespace ingot
