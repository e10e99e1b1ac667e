#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "formats/block_quant.h"
#include "model/rope.h"

namespace ingot {

// What the same tensor is called in the two kinds of checkpoint. `{}` is the layer.
struct WeightPlan::Names {
  const char *embedding, *head, *final_norm, *layer;
  const char *attention_norm, *q, *k, *v, *output, *mlp_norm, *gate, *up, *down;
};

namespace {

constexpr const char* kRopeFactors = "rope_freqs.weight";  // already part of the configuration

// Buffers some old checkpoints carry along; they are recomputed from the configuration.
bool is_derived(std::string_view name) { return name.ends_with("rotary_emb.inv_freq") || name == kRopeFactors; }

// Row `row` of a matrix, or element `row` of a vector, as floats.
void read_rows(const TensorView& tensor, int64_t row, int64_t width, float* out) {
  const size_t bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(width));
  dequantize(tensor.dtype, tensor.data.data() + static_cast<size_t>(row) * bytes, static_cast<size_t>(width), out);
}

}  // namespace

WeightPlan::WeightPlan(const Checkpoint& checkpoint, const ModelConfig& config, bool gguf_names)
    : checkpoint_(checkpoint), config_(config) {
  static constexpr Names kGguf = {"token_embd", "output", "output_norm", "blk.{}.",     "attn_norm",
                                  "attn_q",     "attn_k", "attn_v",      "attn_output", "ffn_norm",
                                  "ffn_gate",   "ffn_up", "ffn_down"};
  static constexpr Names kHuggingFace = {
      "model.embed_tokens", "lm_head",          "model.norm",       "model.layers.{}.", "input_layernorm",
      "self_attn.q_proj",   "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
      "mlp.gate_proj",      "mlp.up_proj",      "mlp.down_proj"};
  const Names& names = gguf_names ? kGguf : kHuggingFace;
  // llama.cpp's converter interleaves the rotary halves of Q and K for this architecture, and for it alone.
  if (gguf_names && config.architecture == "llama") interleaved_head_size_ = config.head_size;
  const auto weight = [](const char* name) { return std::string(name) + ".weight"; };

  embedding_ = matrix("embedding", {part(weight(names.embedding), {config.vocab, config.hidden})});
  if (config.tied_embeddings) {
    head_ = embedding_;
    taken_.push_back(weight(names.head));  // some tied checkpoints store the copy as well
  } else {
    head_ = matrix("head", {part(weight(names.head), {config.vocab, config.hidden})});
  }
  final_norm_ = vector("final_norm", {part(weight(names.final_norm), {config.hidden})});
  for (int64_t i = 0; i < config.layers; ++i) layers_.push_back(plan_layer(names, i));
  refuse_leftovers(gguf_names);
}

WeightPlan::LayerPlan WeightPlan::plan_layer(const Names& names, int64_t index) {
  const ModelConfig& c = config_;
  const std::string prefix = fmt::format(fmt::runtime(names.layer), index);
  const auto weight = [&](const char* name) { return prefix + name + ".weight"; };
  const auto bias = [&](const char* name) { return prefix + name + ".bias"; };
  const int64_t interleaved = interleaved_head_size_;
  const int64_t q = c.heads * c.head_size;
  const int64_t kv = c.kv_heads * c.head_size;

  LayerPlan plan;
  plan.attention_norm = vector(prefix + "attention_norm", {part(weight(names.attention_norm), {c.hidden})});
  plan.qkv = matrix(prefix + "qkv",
                    {part(weight(names.q), {q, c.hidden}, interleaved),
                     part(weight(names.k), {kv, c.hidden}, interleaved), part(weight(names.v), {kv, c.hidden})});
  plan.output = matrix(prefix + "output", {part(weight(names.output), {c.hidden, q})});
  plan.mlp_norm = vector(prefix + "mlp_norm", {part(weight(names.mlp_norm), {c.hidden})});
  plan.gate = matrix(prefix + "gate", {part(weight(names.gate), {c.ffn, c.hidden})});
  plan.up = matrix(prefix + "up", {part(weight(names.up), {c.ffn, c.hidden})});
  plan.down = matrix(prefix + "down", {part(weight(names.down), {c.hidden, c.ffn})});

  plan.qkv_bias = plan.output_bias = plan.gate_bias = plan.up_bias = plan.down_bias = -1;
  if (c.attention_bias) {
    plan.qkv_bias = vector(prefix + "qkv_bias", {part(bias(names.q), {q}, interleaved),
                                                 part(bias(names.k), {kv}, interleaved), part(bias(names.v), {kv})});
    if (checkpoint_.find(bias(names.output)) != nullptr)
      plan.output_bias = vector(prefix + "output_bias", {part(bias(names.output), {c.hidden})});
  }
  if (c.mlp_bias) {
    plan.gate_bias = vector(prefix + "gate_bias", {part(bias(names.gate), {c.ffn})});
    plan.up_bias = vector(prefix + "up_bias", {part(bias(names.up), {c.ffn})});
    plan.down_bias = vector(prefix + "down_bias", {part(bias(names.down), {c.hidden})});
  }
  return plan;
}

const TensorView& WeightPlan::take(const std::string& name, std::vector<int64_t> shape) {
  const TensorView& tensor = checkpoint_.get(name);
  if (tensor.shape != shape)
    throw_error(ErrorKind::bad_file, "tensor {}: its shape is [{}], the configuration asks for [{}]", name,
                fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  taken_.push_back(name);
  return tensor;
}

MatrixPart WeightPlan::part(const std::string& name, std::vector<int64_t> shape, int64_t interleaved_head_size) {
  return {&take(name, std::move(shape)), interleaved_head_size};
}

int WeightPlan::matrix(std::string name, std::vector<MatrixPart> parts) {
  MatrixSpec spec{std::move(name), std::move(parts)};
  for (const MatrixPart& p : spec.parts) spec.rows += p.tensor->shape[0];
  spec.cols = spec.parts.front().tensor->shape[1];
  matrices_.push_back(std::move(spec));
  return static_cast<int>(matrices_.size()) - 1;
}

int WeightPlan::vector(std::string name, std::vector<MatrixPart> parts) {
  VectorSpec spec{std::move(name), std::move(parts)};
  for (const MatrixPart& p : spec.parts) {
    if (is_block_quantized(p.tensor->dtype))
      throw_error(ErrorKind::declined, "tensor {}: a {} vector is not supported; norms and biases are f32, f16 or bf16",
                  p.tensor->name, dtype_name(p.tensor->dtype));
    spec.size += p.tensor->shape[0];
  }
  vectors_.push_back(std::move(spec));
  return static_cast<int>(vectors_.size()) - 1;
}

// A tensor that nobody takes means that the model is not what its configuration says: running it would give wrong
// answers.
void WeightPlan::refuse_leftovers(bool gguf_names) const {
  std::vector<std::string> taken = taken_;
  std::sort(taken.begin(), taken.end());
  for (const TensorView& tensor : checkpoint_.tensors())
    if (!std::binary_search(taken.begin(), taken.end(), tensor.name) && !is_derived(tensor.name))
      throw_error(ErrorKind::bad_file, "tensor {}: not part of a {} model with this {}", tensor.name,
                  config_.architecture, gguf_names ? "metadata" : "config.json");
}

size_t WeightPlan::device_bytes(const Backend& device) const {
  size_t bytes = 0;
  for (const MatrixSpec& spec : matrices_) bytes += device.matrix_bytes(spec);
  for (const VectorSpec& spec : vectors_) bytes += static_cast<size_t>(spec.size) * sizeof(float);
  return bytes;
}

ModelWeights WeightPlan::load(Backend& device, const Progress& progress) const {
  const size_t total = tensors();
  size_t done = 0;
  const auto step = [&] {
    if (progress) progress(++done, total);
  };
  std::vector<WeightId> matrices, vectors;
  for (const MatrixSpec& spec : matrices_) {
    matrices.push_back(device.load_matrix(spec));
    step();
  }
  std::vector<float> values;
  for (const VectorSpec& spec : vectors_) {
    values.resize(static_cast<size_t>(spec.size));
    float* out = values.data();
    for (const MatrixPart& p : spec.parts)
      for (int64_t row = 0; row < p.tensor->shape[0]; ++row) read_rows(*p.tensor, p.source_row(row), 1, out++);
    vectors.push_back(device.load_vector(spec.name, values));
    step();
  }
  const auto m = [&](int index) { return index < 0 ? WeightId{} : matrices[index]; };
  const auto v = [&](int index) { return index < 0 ? WeightId{} : vectors[index]; };

  ModelWeights weights;
  weights.embedding = m(embedding_);
  weights.head = m(head_);
  weights.final_norm = v(final_norm_);
  weights.inv_freq = device.load_vector("inv_freq", rope_inv_freq(config_));
  for (const LayerPlan& p : layers_)
    weights.layers.push_back({v(p.attention_norm), m(p.qkv), v(p.qkv_bias), m(p.output), v(p.output_bias),
                              v(p.mlp_norm), m(p.gate), v(p.gate_bias), m(p.up), v(p.up_bias), m(p.down),
                              v(p.down_bias)});
  return weights;
}

}  // namespace ingot
