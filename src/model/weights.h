#pragma once

#include <deque>
#include <functional>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "model/layout.h"

namespace ingot {

// Which tensors a model needs, found in a checkpoint and checked against the configuration before anything is loaded:
// a missing, misshapen or unexpected tensor is one Error(bad_file) that names it.
class CheckedWeights {
 public:
  CheckedWeights(const Checkpoint& checkpoint, const ModelConfig& config, NameStyle style);

  // Bytes the weights will take on the device.
  size_t device_bytes(const Backend& device) const;
  size_t tensors() const { return layout_.weights.size(); }  // weights on the device

  // Uploads everything, calling `progress(done, total)` in bytes on the device.
  using Progress = std::function<void(size_t done, size_t total)>;
  ModelWeights load(Backend& device, const Progress& progress) const;

 private:
  void check(const WeightNeed& need) const;
  size_t device_bytes(const WeightNeed& need, const Backend& device) const;
  void refuse_leftovers(NameStyle style) const;
  // The tensors of a matrix, each as one of `views`: [rows, cols], experts one over the other.
  MatrixSpec spec_of(const WeightNeed& need, std::deque<TensorView>& views) const;
  WeightId load_vector(const WeightNeed& need, Backend& device) const;
  WeightId load_matrix(const WeightNeed& need, Backend& device) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  ModelLayout layout_;
};

}  // namespace ingot
