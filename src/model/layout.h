#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace ingot {

// How the tensors of a checkpoint are called and stored.
enum class NameStyle { hugging_face, gguf };

// One tensor of a checkpoint that a weight is made of.
struct TensorNeed {
  std::string name;
  std::vector<int64_t> shape;         // as stored: [rows, cols], [rows], or [groups, rows, cols]
  int64_t interleaved_head_size = 0;  // see MatrixPart
  bool transposed = false;            // stored [cols, rows]: GPT-2's Conv1D
};

// One weight on the device: what it is made of, and where its id goes. Weights of a layer go to a member of
// LayerWeights, the others to one of ModelWeights.
struct WeightNeed {
  std::vector<TensorNeed> parts;  // stacked along the rows
  int64_t layer = -1;             // -1: of the whole model
  WeightId LayerWeights::* layer_slot = nullptr;
  WeightId ModelWeights::* model_slot = nullptr;
  bool vector = false;
  int64_t groups = 1;  // experts stacked in one matrix
  float offset = 0;    // vectors: added to every value

  std::string name() const;  // for errors and profiles
};

struct ModelLayout {
  std::vector<WeightNeed> weights;
  std::vector<std::string> ignored;  // tensors that may be there and are not needed
};

// What the tensor `name` is called in this checkpoint: GPT-2 is also published without its outermost module.
std::string stored_name(const Checkpoint& checkpoint, const std::string& name);

// Every tensor a model of this configuration has. Looks at the configuration alone.
ModelLayout model_layout(const ModelConfig& config, NameStyle style);

}  // namespace ingot
