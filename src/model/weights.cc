#include "model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "model/rope.h"

namespace ingot {

namespace {

// Buffers some old checkpoints carry along; they are recomputed from the configuration.
bool is_derived(std::string_view name) { return name.ends_with("rotary_emb.inv_freq") || name == kRopeFactors; }

// Of a vector.
Range rows_of(const TensorNeed& part) { return part.rows.value_or(Range{0, part.shape[0]}); }

// Leaves these rows of a matrix, which may have no address.
void cut_rows(TensorView& view, Range rows) {
  const auto bytes = [&view](int64_t n) { return dtype_bytes(view.dtype, static_cast<size_t>(n * view.shape[1])); };
  view.data = view.is_computed() ? computed_bytes(bytes(rows.size()))
                                 : view.data.subspan(bytes(rows.begin), bytes(rows.size()));
  view.shape[0] = rows.size();
}

}  // namespace

CheckedWeights::CheckedWeights(const Checkpoint& checkpoint, const ModelConfig& config, NameStyle style, int rank,
                               int ranks, const Stage& stage)
    : checkpoint_(checkpoint), config_(config), layout_(model_layout(config, style)) {
  for (const WeightNeed& need : layout_.weights) check(need);
  refuse_leftovers(style);
  share_ = share_model(config, layout_, checkpoint, rank, ranks, stage);
  cut_layout(layout_, config, share_);
}

void CheckedWeights::check(const WeightNeed& need) const {
  for (const TensorNeed& part : need.parts) {
    const TensorView& tensor = checkpoint_.get(part.name);
    if (tensor.shape != part.shape)
      throw_error(ErrorKind::bad_file, "tensor {}: its shape is [{}], the configuration asks for [{}]", part.name,
                  fmt::join(tensor.shape, ", "), fmt::join(part.shape, ", "));
    if (need.vector && is_block_quantized(tensor.dtype))
      throw_error(ErrorKind::declined, "tensor {}: a {} vector is not supported; norms and biases are f32, f16 or bf16",
                  tensor.name, dtype_name(tensor.dtype));
  }
}

// A tensor that nobody takes means that the model is not what its configuration says: running it would give wrong
// answers.
void CheckedWeights::refuse_leftovers(NameStyle style) const {
  std::set<std::string_view> known(layout_.ignored.begin(), layout_.ignored.end());
  for (const WeightNeed& need : layout_.weights)
    for (const TensorNeed& part : need.parts) known.insert(part.name);
  const auto ignored = [this](const std::string& name) {
    return std::ranges::any_of(layout_.ignored_beginnings,
                               [&name](const std::string& beginning) { return name.starts_with(beginning); });
  };
  for (const TensorView& tensor : checkpoint_.tensors())
    if (!known.contains(tensor.name) && !is_derived(tensor.name) && !ignored(tensor.name))
      throw_error(ErrorKind::bad_file, "tensor {}: not part of a {} model with this {}", tensor.name,
                  config_.architecture, style == NameStyle::gguf ? "metadata" : "config.json");
}

MatrixSpec CheckedWeights::spec_of(const WeightNeed& need, std::deque<TensorView>& views,
                                   std::vector<TensorBytes>* held) const {
  MatrixSpec spec{.name = need.name(), .groups = need.groups, .slices = need.slices};
  for (const TensorNeed& part : need.parts) {
    TensorView& view = views.emplace_back(checkpoint_.get(part.name));
    if (held != nullptr) view.data = held->emplace_back(checkpoint_, view).bytes;
    const int64_t width = part.shape.back();
    view.shape = {view.elements() / width, width};
    if (part.rows) cut_rows(view, *part.rows);
    spec.cols = part.cols ? part.cols->size() : width;
    spec.rows += view.shape[0];
    spec.parts.push_back({&view, part.interleaved_head_size, part.cols ? part.cols->begin : -1});
  }
  return spec;
}

size_t CheckedWeights::device_bytes(const WeightNeed& need, const Backend& device) const {
  std::deque<TensorView> views;
  if (!need.vector) return device.matrix_bytes(spec_of(need, views, nullptr));
  size_t bytes = 0;
  for (const TensorNeed& part : need.parts) bytes += static_cast<size_t>(rows_of(part).size()) * sizeof(float);
  return bytes;
}

size_t CheckedWeights::device_bytes(const Backend& device) const {
  size_t bytes = 0;
  for (const WeightNeed& need : layout_.weights) bytes += device_bytes(need, device);
  return bytes;
}

std::string CheckedWeights::recipe() const {
  std::string text;
  const auto put_range = [&text](const char* what, const std::optional<Range>& range) {
    if (range) text += fmt::format(" {} {}-{}", what, range->begin, range->end);
  };
  for (const WeightNeed& need : layout_.weights) {
    if (need.vector) continue;
    text += fmt::format("{} groups, slices {}:", need.groups, fmt::join(need.slices, ","));
    for (const TensorNeed& part : need.parts) {
      const TensorView& tensor = checkpoint_.get(part.name);
      text += fmt::format(" {} {} [{}] heads {}", part.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                          part.interleaved_head_size);
      put_range("rows", part.rows);
      put_range("columns", part.cols);
    }
    text += "\n";
  }
  return text;
}

StageCosts CheckedWeights::costs(const Backend& device) const {
  StageCosts costs;
  costs.layers.resize(static_cast<size_t>(config_.layers));
  const bool in_file = embedding_stays_in_file(config_, layout_, checkpoint_);
  for (const WeightNeed& need : layout_.weights) {
    const uint64_t bytes = device_bytes(need, device);
    // What a row reads of experts.
    const double part = need.groups > 1 ? static_cast<double>(config_.experts_per_token) / config_.experts : 1;
    const bool embeds = need.model_slot == &ModelWeights::embedding, tied = embeds && config_.tied_embeddings;
    if (need.layer >= 0)
      costs.layers[static_cast<size_t>(need.layer)].add(bytes, part);
    else if (embeds || need.model_slot == &ModelWeights::positions)
      costs.first.add(in_file ? 0 : bytes, 0);
    if (tied || (need.layer < 0 && !embeds && need.model_slot != &ModelWeights::positions)) costs.last.add(bytes, 1);
  }
  return costs;
}

WeightId CheckedWeights::load_vector(const WeightNeed& need, Backend& device) const {
  std::vector<float> values;
  for (const TensorNeed& part : need.parts) {
    const TensorView& tensor = checkpoint_.get(part.name);
    const TensorBytes data(checkpoint_, tensor);
    const MatrixPart order{nullptr, part.interleaved_head_size};
    for (int64_t row = rows_of(part).begin; row < rows_of(part).end; ++row)
      dequantize(tensor.dtype,
                 data.bytes.data() + dtype_bytes(tensor.dtype, static_cast<size_t>(order.source_row(row))), 1,
                 &values.emplace_back());
  }
  for (float& value : values) value = (value + need.offset) * need.factor;
  return device.load_vector(need.name(), values);
}

// What is computed is computed one weight at a time, in memory of its own, which the device gives back as it reads on.
WeightId CheckedWeights::load_matrix(const WeightNeed& need, Backend& device) const {
  std::deque<TensorView> views;
  if (const std::optional<WeightId> found = device.find_matrix(spec_of(need, views, nullptr))) return *found;
  std::vector<TensorBytes> held;
  return device.load_matrix(spec_of(need, views, &held));
}

ModelWeights CheckedWeights::load(Backend& device, const Progress& progress) const {
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(config_.layers));
  size_t done = 0;
  const size_t total = device_bytes(device);
  for (const WeightNeed& need : layout_.weights) {
    const WeightId id = need.vector ? load_vector(need, device) : load_matrix(need, device);
    if (need.layer >= 0) {
      weights.layers[static_cast<size_t>(need.layer)].*need.layer_slot = id;
    } else {
      weights.*need.model_slot = id;
    }
    done += device_bytes(need, device);
    if (progress) progress(done, total);
  }
  if (!weights.head) weights.head = weights.embedding;
  if (!config_.learned_positions) weights.inv_freq = device.load_vector("inv_freq", rope_inv_freq(config_));
  if (config_.local_rope_theta > 0)
    weights.local_inv_freq = device.load_vector("local_inv_freq", local_rope_inv_freq(config_));
  return weights;
}

}  // namespace ingot
