#include "model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "formats/block_quant.h"
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

constexpr const char* kRopeFactors = "rope_freqs.weight";  // already part of the configuration

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

// [rows, cols] of a plain format turned into [cols, rows].
std::vector<std::byte> transpose(const TensorView& tensor) {
  const size_t size = dtype_bytes(tensor.dtype, 1);
  const auto rows = static_cast<size_t>(tensor.shape[0]), cols = static_cast<size_t>(tensor.shape[1]);
  std::vector<std::byte> out(tensor.data.size());
  constexpr size_t kTile = 32;
  for (size_t r0 = 0; r0 < rows; r0 += kTile)
    for (size_t c0 = 0; c0 < cols; c0 += kTile)
      for (size_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (size_t c = c0; c < std::min(cols, c0 + kTile); ++c)
          std::memcpy(out.data() + (c * rows + r) * size, tensor.data.data() + (r * cols + c) * size, size);
  return out;
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
  // GPT-2 is published without its outermost module.
  constexpr std::string_view kOuter = "transformer.";
  std::string name = need.name;
  if (checkpoint_.find(name) == nullptr && name.starts_with(kOuter) &&
      checkpoint_.find(std::string_view(name).substr(kOuter.size())) != nullptr)
    name = name.substr(kOuter.size());
  const TensorView& tensor = checkpoint_.get(name);
  if (tensor.shape != need.shape)
    throw_error(ErrorKind::bad_file, "tensor {}: its shape is [{}], the configuration asks for [{}]", name,
                fmt::join(tensor.shape, ", "), fmt::join(need.shape, ", "));
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
    if (part.transposed || part.shape.size() == 3) {
      if (part.transposed && is_block_quantized(tensor->dtype))
        throw_error(ErrorKind::declined, "tensor {}: a transposed {} matrix is not supported", tensor->name,
                    dtype_name(tensor->dtype));
      TensorView view = *tensor;
      if (part.transposed) {
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
