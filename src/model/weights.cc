#include "model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/convert_rows.h"
#include "formats/made_checkpoint.h"
#include "model/layout.h"
#include "model/rope.h"

namespace ingot {

// A weight whose tensors have been found.
struct WeightPlan::Resolved {
  WeightNeed need;
  MatrixSpec spec;  // of a vector: cols 1
  bool transposed = false;
};

namespace {

// Buffers some old checkpoints carry along; they are recomputed from the configuration.
bool is_derived(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name == kRopeFactors || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".attn.bias");
}

// Row `row` of a matrix, or element `row` of a vector, as floats.
void read_rows(const TensorView& tensor, int64_t row, int64_t width, float* out) {
  const size_t bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(width));
  dequantize(tensor.dtype, tensor.data.data() + static_cast<size_t>(row) * bytes, static_cast<size_t>(width), out);
}

}  // namespace

WeightPlan::WeightPlan(const Checkpoint& checkpoint, const ModelConfig& config, bool gguf_names)
    : checkpoint_(checkpoint), config_(config) {
  const ModelLayout layout = model_layout(config, gguf_names ? NameStyle::gguf : NameStyle::hugging_face);
  for (const WeightNeed& need : layout.weights) resolve(need);
  refuse_leftovers(layout, gguf_names);
}

WeightPlan::~WeightPlan() = default;
size_t WeightPlan::tensors() const { return weights_.size(); }

const TensorView& WeightPlan::find_tensor(const TensorNeed& need) {
  std::string name = stored_name(checkpoint_, need.name);
  const TensorView& tensor = checkpoint_.get(name);
  std::vector<int64_t> shape = need.shape;
  if (need.transposed && tensor.is_made()) std::reverse(shape.begin(), shape.end());  // made the right way round
  if (tensor.shape != shape)
    throw_error(ErrorKind::bad_file, "tensor {}: its shape is [{}], the configuration asks for [{}]", name,
                fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  taken_.push_back(std::move(name));
  return tensor;
}

void WeightPlan::resolve(const WeightNeed& need) {
  Resolved weight{need, {}, false};
  weight.spec.name = need.name();
  weight.spec.groups = need.groups;
  for (const TensorNeed& part : need.parts) {
    const TensorView* tensor = &find_tensor(part);
    if (need.vector && is_block_quantized(tensor->dtype))
      throw_error(ErrorKind::declined, "tensor {}: a {} vector is not supported; norms and biases are f32, f16 or bf16",
                  tensor->name, dtype_name(tensor->dtype));
    const bool transposed = part.transposed && !tensor->is_made();
    if (transposed || part.shape.size() == 3) {
      if (transposed && is_block_quantized(tensor->dtype))
        throw_error(ErrorKind::declined, "tensor {}: a transposed {} matrix is not supported", tensor->name,
                    dtype_name(tensor->dtype));
      TensorView view = *tensor;
      if (transposed) {
        weight.transposed = true;
        view.shape = {part.shape[1], part.shape[0]};
      } else {
        view.shape = {part.shape[0] * part.shape[1], part.shape[2]};
      }
      views_.push_back(std::move(view));
      tensor = &views_.back();
    }
    weight.spec.parts.push_back({tensor, part.interleaved_head_size});
    weight.spec.rows += tensor->shape[0];
    weight.spec.cols = need.vector ? 1 : tensor->shape[1];
  }
  weights_.push_back(std::move(weight));
}

// A tensor that nobody takes means that the model is not what its configuration says: running it would give wrong
// answers.
void WeightPlan::refuse_leftovers(const ModelLayout& layout, bool gguf_names) const {
  std::vector<std::string> taken = taken_;
  taken.insert(taken.end(), layout.ignored.begin(), layout.ignored.end());
  std::sort(taken.begin(), taken.end());
  for (const TensorView& tensor : checkpoint_.tensors())
    if (!std::binary_search(taken.begin(), taken.end(), tensor.name) && !is_derived(tensor.name))
      throw_error(ErrorKind::bad_file, "tensor {}: not part of a {} model with this {}", tensor.name,
                  config_.architecture, gguf_names ? "metadata" : "config.json");
}

size_t WeightPlan::device_bytes(const Backend& device) const {
  size_t bytes = 0;
  for (const Resolved& weight : weights_)
    bytes +=
        weight.need.vector ? static_cast<size_t>(weight.spec.rows) * sizeof(float) : device.matrix_bytes(weight.spec);
  return bytes;
}

WeightId WeightPlan::load_weight(const Resolved& weight, Backend& device) const {
  if (weight.need.vector) {
    std::vector<float> values(static_cast<size_t>(weight.spec.rows));
    float* out = values.data();
    for (const MatrixPart& part : weight.spec.parts)
      for (int64_t row = 0; row < part.tensor->shape[0]; ++row) read_rows(*part.tensor, part.source_row(row), 1, out++);
    for (float& value : values) value += weight.need.offset;
    return device.load_vector(weight.spec.name, values);
  }
  const auto is_made = [](const MatrixPart& part) { return part.tensor->is_made(); };
  if (std::any_of(weight.spec.parts.begin(), weight.spec.parts.end(), is_made)) return load_made(weight, device);
  if (!weight.transposed) return device.load_matrix(weight.spec);
  // One matrix at a time is turned in memory of its own.
  TensorView turned = *weight.spec.parts[0].tensor;
  const std::vector<std::byte> bytes =
      transpose({turned.name, turned.dtype, {turned.shape[1], turned.shape[0]}, turned.data});
  turned.data = bytes;
  MatrixSpec spec = weight.spec;
  spec.parts = {{&turned, 0}};
  return device.load_matrix(spec);
}

// One weight at a time is made in memory of its own, which the device gives back as it reads on.
WeightId WeightPlan::load_made(const Resolved& weight, Backend& device) const {
  std::vector<std::shared_ptr<PageBuffer>> buffers;
  std::deque<TensorView> tensors;
  MatrixSpec spec = weight.spec;
  for (MatrixPart& part : spec.parts) {
    if (!part.tensor->is_made()) continue;
    buffers.push_back(checkpoint_.make(*part.tensor));
    TensorView& tensor = tensors.emplace_back(*part.tensor);
    tensor.data = buffers.back()->bytes();
    part.tensor = &tensor;
  }
  return device.load_matrix(spec);
}

ModelWeights WeightPlan::load(Backend& device, const Progress& progress) const {
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(config_.layers));
  size_t done = 0;
  for (const Resolved& weight : weights_) {
    const WeightId id = load_weight(weight, device);
    if (weight.need.layer_slot != nullptr) {
      weights.layers[static_cast<size_t>(weight.need.layer)].*weight.need.layer_slot = id;
    } else {
      weights.*weight.need.model_slot = id;
    }
    if (progress) progress(++done, weights_.size());
  }
  if (!weights.head) weights.head = weights.embedding;
  if (!config_.learned_positions) weights.inv_freq = device.load_vector("inv_freq", rope_inv_freq(config_));
  if (config_.local_rope_theta > 0)
    weights.local_inv_freq = device.load_vector("local_inv_freq", local_rope_inv_freq(config_));
  return weights;
}

}  // namespace ingot
