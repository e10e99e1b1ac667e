#include "model/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/convert_rows.h"
#include "formats/made_checkpoint.h"
#include "model/config_read.h"
#include "model/layout.h"
#include "model/rope.h"

namespace ingot {
namespace {

// What Llama 3's stretched frequencies are divided by; empty for other models.
std::vector<float> rope_factors(const ModelConfig& config) {
  std::vector<float> factors = config.rope_scaling.factors;
  if (config.rope_scaling.kind != RopeScaling::Kind::llama3) return factors;
  const std::vector<float> stretched = rope_inv_freq(config);
  for (size_t i = 0; i < stretched.size(); ++i) {
    const double plain =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.rope_dims));
    factors.push_back(static_cast<float>(plain / static_cast<double>(stretched[i])));
  }
  return factors;
}

class ExportedCheckpoint : public MadeCheckpoint {
 public:
  ExportedCheckpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config)
      : MadeCheckpoint(std::move(source), 1), factors_(rope_factors(config)) {
    // Both layouts list the same weights in the same order.
    const ModelLayout stored = model_layout(config, NameStyle::hugging_face);
    const ModelLayout wanted = model_layout(config, NameStyle::gguf);
    for (size_t i = 0; i < wanted.weights.size(); ++i) {
      const WeightNeed &from = stored.weights[i], &to = wanted.weights[i];
      if (to.parts.size() == from.parts.size()) {
        for (size_t p = 0; p < to.parts.size(); ++p) add(to, to.parts[p], {&from.parts[p], 1});
      } else {  // all experts of a layer in one tensor
        add(to, to.parts[0], from.parts);
      }
    }
    if (!factors_.empty()) {
      TensorView& tensor = tensors_.emplace_back();
      tensor = {kRopeFactors, DType::f32, {static_cast<int64_t>(factors_.size())}, {}};
      tensor.data = made_bytes(factors_.size() * sizeof(float));
      making_.emplace_back();
    }
    index_tensors();
  }

  std::span<const float> factors() const { return factors_; }

 protected:
  void fill(const TensorView& tensor, std::byte* out, ThreadPool&) const override {
    if (tensor.name == kRopeFactors) {
      std::memcpy(out, factors_.data(), tensor.data.size());
      return;
    }
    const Making& making = making_[static_cast<size_t>(&tensor - tensors_.data())];
    for (const Source& source : making.sources) {
      const std::shared_ptr<PageBuffer> made = source.tensor->is_made() ? source_->make(*source.tensor) : nullptr;
      const std::byte* data = made ? made->bytes().data() : source.tensor->data.data();
      std::vector<std::byte> turned;
      if (source.transposed) {
        turned = transpose(*source.tensor);
        data = turned.data();
      }
      out = copy_rows(source, making, data, tensor, out);
      if (!made) source_->drop_pages(source.tensor->data);
    }
  }

 private:
  struct Source {
    const TensorView* tensor;
    bool transposed;  // stored [cols, rows] and not made
    int64_t rows, cols;
  };
  struct Making {
    std::vector<Source> sources;  // one over the other
    int64_t interleaved_head_size = 0;
    float offset = 0;
  };

  // The rows of a head's rotary halves are interleaved where GGUF wants that; values become f32 where it wants that.
  std::byte* copy_rows(const Source& source, const Making& making, const std::byte* data, const TensorView& target,
                       std::byte* out) const {
    const MatrixPart order{nullptr, making.interleaved_head_size};
    const DType type = source.tensor->dtype;
    const auto width = static_cast<size_t>(source.cols);
    const size_t in_bytes = dtype_bytes(type, width), out_bytes = dtype_bytes(target.dtype, width);
    std::vector<float> values(width);
    for (int64_t row = 0; row < source.rows; ++row) {
      const std::byte* from = data + static_cast<size_t>(row) * in_bytes;
      std::byte* to = out + static_cast<size_t>(order.source_row(row)) * out_bytes;
      if (type == target.dtype && making.offset == 0) {
        std::memcpy(to, from, in_bytes);
        continue;
      }
      dequantize(type, from, width, values.data());
      for (float& value : values) value += making.offset;
      quantize(target.dtype, values.data(), width, to);
    }
    return out + static_cast<size_t>(source.rows) * out_bytes;
  }

  void add(const WeightNeed& weight, const TensorNeed& need, std::span<const TensorNeed> parts) {
    const bool in_full =
        weight.vector || weight.layer_slot == &LayerWeights::router || weight.model_slot == &ModelWeights::positions;
    Making& making = making_.emplace_back();
    making.interleaved_head_size = need.interleaved_head_size;
    making.offset = weight.offset;
    const int64_t cols = weight.vector ? 1 : need.shape.back();
    DType type = DType::f32;
    for (const TensorNeed& part : parts) {
      const TensorView& tensor = source_->get(stored_name(*source_, part.name));
      const int64_t rows = tensor.elements() / cols;
      making.sources.push_back({&tensor, part.transposed && !tensor.is_made(), rows, cols});
      if (!in_full) type = tensor.dtype;
      if (tensor.dtype != making.sources.front().tensor->dtype)
        throw_error(ErrorKind::declined, "tensor {}: the experts of a layer differ in format, which GGUF cannot say",
                    tensor.name);
    }
    TensorView tensor{need.name, type, need.shape, {}};
    tensor.data = made_bytes(dtype_bytes(type, static_cast<size_t>(tensor.elements())));
    tensors_.push_back(std::move(tensor));
  }

  const std::vector<float> factors_;
  std::vector<Making> making_;  // of tensors_
};

GgufValues values_of(const ModelConfig& c) {
  GgufValues values;
  const auto key = [&c](const char* name) { return c.architecture + "." + name; };
  values.put_text("general.architecture", c.architecture);
  values.put_text("general.type", "model");
  values.put_text("general.name", c.name);
  values.put_u32(key("block_count"), c.layers);
  values.put_u32(key("context_length"), c.max_position);
  values.put_u32(key("embedding_length"), c.hidden);
  values.put_u32(key("feed_forward_length"), c.ffn);
  values.put_u32(key("attention.head_count"), c.heads);
  values.put_u32(key("attention.head_count_kv"), c.kv_heads);
  values.put_u32(key("vocab_size"), c.vocab);
  values.put_f32(key(c.norm == NormKind::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
                 c.norm_eps);
  if (c.experts > 0) {
    values.put_u32(key("expert_count"), c.experts);
    values.put_u32(key("expert_used_count"), c.experts_per_token);
    values.put_u32(key("expert_feed_forward_length"), c.expert_ffn);
  }
  if (c.learned_positions) return values;
  values.put_u32(key("attention.key_length"), c.head_size);
  values.put_u32(key("attention.value_length"), c.head_size);
  values.put_u32(key("rope.dimension_count"), c.rope_dims);
  values.put_f32(key("rope.freq_base"), c.rope_theta);
  const RopeScaling& scaling = c.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear || scaling.kind == RopeScaling::Kind::yarn) {
    const bool yarn = scaling.kind == RopeScaling::Kind::yarn;
    values.put_text(key("rope.scaling.type"), yarn ? "yarn" : "linear");
    values.put_f32(key("rope.scaling.factor"), scaling.factor);
    if (yarn) values.put_u32(key("rope.scaling.original_context_length"), scaling.original_max_position);
  }
  if (c.architecture == "gemma3") {  // llama.cpp looks for a window in no other of our architectures
    values.put_u32(key("attention.sliding_window"), c.sliding_window);
    values.put_f32(key("rope.freq_base_swa"), c.local_rope_theta);
  }
  return values;
}

bool near(float a, float b) { return std::fabs(a - b) <= 1e-5f * std::fabs(a); }

float attention_scale(const ModelConfig& c) {
  return c.attention_scale != 0 ? c.attention_scale : 1 / std::sqrt(static_cast<float>(c.head_size));
}

// The first setting of `a` that `b` has otherwise; empty: they are the same model.
std::string difference(const ModelConfig& a, const ModelConfig& b) {
  if (a.hidden != b.hidden || a.layers != b.layers || a.heads != b.heads || a.kv_heads != b.kv_heads ||
      a.head_size != b.head_size || a.ffn != b.ffn || a.vocab != b.vocab || a.max_position != b.max_position)
    return "its sizes";
  if (a.norm != b.norm || a.norm_eps != b.norm_eps) return "its norms";
  if (a.activation != b.activation || a.gated_mlp != b.gated_mlp) return "its activation";
  if (a.tied_embeddings != b.tied_embeddings) return "its head";
  if (a.attention_bias != b.attention_bias || a.output_bias != b.output_bias || a.mlp_bias != b.mlp_bias)
    return "its biases";
  if (a.learned_positions != b.learned_positions || a.qk_norm != b.qk_norm || a.sandwich_norms != b.sandwich_norms ||
      !near(a.embedding_scale, b.embedding_scale))
    return "its family";
  if (!near(attention_scale(a), attention_scale(b))) return "its attention scale";
  if (a.experts != b.experts || a.experts_per_token != b.experts_per_token || a.expert_ffn != b.expert_ffn ||
      (a.experts > 0 && a.norm_expert_weights != b.norm_expert_weights))
    return "how its experts are chosen";
  bool local = false;
  for (int64_t i = 0; i < a.layers; ++i) {
    const LayerConfig x = a.layer(i), y = b.layer(i);
    if (x.window != y.window) return "its sliding window";
    if (x.rope != y.rope) return "which layers have positions";
    if (x.experts != y.experts) return "which layers have experts";
    local = local || x.rope == LayerConfig::Rope::local;
  }
  if (a.learned_positions) return "";
  const std::vector<float> x = rope_inv_freq(a), y = rope_inv_freq(b);
  if (!std::equal(x.begin(), x.end(), y.begin(), y.end(), near) ||
      !near(static_cast<float>(rope_attention_factor(a)), static_cast<float>(rope_attention_factor(b))) ||
      (local && a.local_rope_theta != b.local_rope_theta))
    return "its rotary scaling";
  return "";
}

// What we ourselves would read from a file with these values and tensors, whose contents do not matter but for the
// rotary factors.
ModelConfig read_back(const GgufValues& values, const ExportedCheckpoint& checkpoint, int64_t vocab) {
  const std::vector<std::byte> zeros(static_cast<size_t>(vocab) * sizeof(float));
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : checkpoint.tensors()) {
    TensorView small{tensor.name, DType::f32, {1}, std::span(zeros).first(sizeof(float))};
    if (tensor.name == "token_embd.weight") {
      small.shape = {vocab, 1};
      small.data = zeros;
    } else if (tensor.name == kRopeFactors) {
      small.shape = tensor.shape;
      small.data = std::as_bytes(checkpoint.factors());
    }
    tensors.push_back(std::move(small));
  }
  const std::string bytes = gguf_bytes(values, tensors);
  return read_config(*GgufFile::open_bytes(std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

}  // namespace

GgufExport export_gguf(std::shared_ptr<const Checkpoint> source, const ModelConfig& config) {
  const std::string where = source->describe();
  WeightPlan(*source, config, false);  // complains of tensors that are missing, misshapen or too many
  const auto checkpoint = std::make_shared<ExportedCheckpoint>(std::move(source), config);
  GgufExport result{values_of(config), checkpoint};
  const std::string what = difference(config, read_back(result.values, *checkpoint, config.vocab));
  if (!what.empty())
    throw_error(ErrorKind::declined, "{}: GGUF cannot say {} for the architecture {}; run the folder with --quantize",
                where, what, config.architecture);
  return result;
}

}  // namespace ingot
