#pragma once

#include <deque>
#include <functional>
#include <string>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "formats/computed_checkpoint.h"
#include "model/layout.h"
#include "model/share.h"
#include "model/stages.h"

namespace ingot {

// Which tensors a model needs, found in a checkpoint and checked against the configuration before anything is loaded:
// a missing, misshapen or unexpected tensor is one Error(bad_file) that names it.
class CheckedWeights {
 public:
  // What `rank` of the `ranks` of a stage has of them.
  CheckedWeights(const Checkpoint& checkpoint, const ModelConfig& config, NameStyle style, int rank, int ranks,
                 const Stage& stage);
  CheckedWeights(const Checkpoint& checkpoint, const ModelConfig& config, NameStyle style)
      : CheckedWeights(checkpoint, config, style, 0, 1, whole_stage(config)) {}

  const ModelShare& share() const { return share_; }

  // Bytes the weights will take on the device.
  size_t device_bytes(const Backend& device) const;
  // What each matrix is made of, in the order in which they are loaded: with the contents of the files all that packed
  // weights depend on.
  std::string recipe() const;
  StageCosts costs(const Backend& device) const;             // of a whole model
  size_t tensors() const { return layout_.weights.size(); }  // weights on the device

  // Uploads everything, calling `progress(done, total)` in bytes on the device.
  using Progress = std::function<void(size_t done, size_t total)>;
  ModelWeights load(Backend& device, const Progress& progress) const;

 private:
  void check(const WeightNeed& need) const;
  size_t device_bytes(const WeightNeed& need, const Backend& device) const;
  void refuse_leftovers(NameStyle style) const;
  // The tensors of a matrix, each as one of `views`: [rows, cols], experts one over the other. What is computed has its
  // bytes in `held`, if that is given.
  MatrixSpec spec_of(const WeightNeed& need, std::deque<TensorView>& views, std::vector<TensorBytes>* held) const;
  WeightId load_vector(const WeightNeed& need, Backend& device) const;
  WeightId load_matrix(const WeightNeed& need, Backend& device) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  ModelLayout layout_;
  ModelShare share_;
};

}  // namespace ingot
