#include "model/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "model/config_read.h"
#include "model/rope.h"
#include "model/weights.h"

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

// Writes the rows of a tensor, those of a head's rotary halves interleaved where GGUF wants that, in its format.
void export_rows(const Checkpoint& checkpoint, const TensorView& source, float offset, const TensorView& target,
                 int64_t interleaved_head_size, std::byte* out) {
  const TensorBytes data(checkpoint, source);
  const MatrixPart order{nullptr, interleaved_head_size};
  const auto width = static_cast<size_t>(source.shape.size() == 1 ? 1 : source.shape.back());
  const size_t in_bytes = dtype_bytes(source.dtype, width), out_bytes = dtype_bytes(target.dtype, width);
  std::vector<float> values(width);
  for (int64_t row = 0; row < source.shape[0]; ++row) {
    const std::byte* from = data.bytes.data() + static_cast<size_t>(row) * in_bytes;
    std::byte* to = out + static_cast<size_t>(order.source_row(row)) * out_bytes;
    if (source.dtype == target.dtype && offset == 0) {
      std::memcpy(to, from, in_bytes);
      continue;
    }
    dequantize(source.dtype, from, width, values.data());
    for (float& value : values) value += offset;
    quantize(target.dtype, values.data(), width, to);
  }
  checkpoint.drop_pages(data.bytes);
}

// The tensor `need` of a GGUF file, made of `parts`, one over the other.
void export_tensor(const Checkpoint& source, const WeightNeed& weight, const TensorNeed& need,
                   std::span<const TensorNeed> parts, ComputedCheckpoint& exported) {
  std::vector<const TensorView*> sources;
  for (const TensorNeed& part : parts) {
    sources.push_back(&source.get(part.name));
    if (sources.back()->dtype != sources.front()->dtype)
      throw_error(ErrorKind::declined, "tensor {}: the experts of a layer differ in format, which GGUF cannot say",
                  part.name);
  }
  const TensorView tensor{need.name, weight.exact ? DType::f32 : sources[0]->dtype, need.shape, {}};
  const auto fill = [=, &source, offset = weight.offset, head_size = need.interleaved_head_size](std::byte* out,
                                                                                                 ThreadPool&) {
    for (const TensorView* part : sources) {
      export_rows(source, *part, offset, tensor, head_size, out);
      out += dtype_bytes(tensor.dtype, static_cast<size_t>(part->elements()));
    }
  };
  exported.add(tensor, fill);
}

std::shared_ptr<Checkpoint> export_tensors(const std::shared_ptr<const Checkpoint>& source, const ModelConfig& config) {
  auto exported = std::make_shared<ComputedCheckpoint>(source, 1);
  // Both layouts list the same weights in the same order.
  const ModelLayout stored = model_layout(config, NameStyle::hugging_face);
  const ModelLayout wanted = model_layout(config, NameStyle::gguf);
  for (size_t i = 0; i < wanted.weights.size(); ++i) {
    const WeightNeed &from = stored.weights[i], &to = wanted.weights[i];
    if (to.parts.size() == from.parts.size()) {
      for (size_t p = 0; p < to.parts.size(); ++p)
        export_tensor(*source, to, to.parts[p], {&from.parts[p], 1}, *exported);
    } else {  // all experts of a layer in one tensor
      export_tensor(*source, to, to.parts[0], from.parts, *exported);
    }
  }
  if (const std::vector<float> factors = rope_factors(config); !factors.empty())
    exported->add(
        {kRopeFactors, DType::f32, {static_cast<int64_t>(factors.size())}, {}},
        [factors](std::byte* out, ThreadPool&) { std::memcpy(out, factors.data(), factors.size() * sizeof(float)); });
  return exported;
}

bool near(float a, float b) { return std::fabs(a - b) <= 1e-5f * std::fabs(a); }

float attention_scale(const ModelConfig& c) {
  return c.attention_scale != 0 ? c.attention_scale : 1 / std::sqrt(static_cast<float>(c.head_size));
}

// The first setting of `a` that `b` has otherwise; empty: they are the same model.
std::string difference(const ModelConfig& a, const ModelConfig& b) {
  using C = ModelConfig;
  const auto same = [&](auto... members) { return ((a.*members == b.*members) && ...); };
  if (!same(&C::hidden, &C::layers, &C::heads, &C::kv_heads, &C::head_size, &C::ffn, &C::vocab, &C::max_position))
    return "its sizes";
  if (!same(&C::norm, &C::norm_eps)) return "its norms";
  if (!same(&C::activation, &C::gated_mlp)) return "its activation";
  if (!same(&C::tied_embeddings)) return "its head";
  if (!same(&C::attention_bias, &C::output_bias, &C::mlp_bias)) return "its biases";
  if (!same(&C::learned_positions, &C::qk_norm, &C::sandwich_norms, &C::residual_scale, &C::logit_divisor) ||
      !near(a.embedding_scale, b.embedding_scale))
    return "its family";
  if (!near(attention_scale(a), attention_scale(b))) return "its attention scale";
  if (!same(&C::experts, &C::experts_per_token, &C::expert_ffn) || (a.experts > 0 && !same(&C::norm_expert_weights)))
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
      !near(rope_attention_factor(a), rope_attention_factor(b)) || (local && !same(&C::local_rope_theta)))
    return "its rotary scaling";
  return "";
}

// What we ourselves would read from a file with these values and tensors, whose contents do not matter but for the
// rotary factors.
ModelConfig read_back(const GgufExport& exported, int64_t vocab) {
  const std::vector<std::byte> zeros(static_cast<size_t>(vocab) * sizeof(float));
  const TensorView* factors = exported.checkpoint->find(kRopeFactors);
  const std::shared_ptr<PageBuffer> computed = factors == nullptr ? nullptr : exported.checkpoint->compute(*factors);
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : exported.checkpoint->tensors()) {
    if (tensor.name == "token_embd.weight")
      tensors.push_back({tensor.name, DType::f32, {vocab, 1}, zeros});
    else if (&tensor == factors)
      tensors.push_back({tensor.name, DType::f32, tensor.shape, computed->bytes()});
    else
      tensors.push_back({tensor.name, DType::f32, {1}, std::span(zeros).first(sizeof(float))});
  }
  const std::string bytes = gguf_bytes(exported.values, tensors);
  return read_config(*GgufFile::open_bytes(std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

}  // namespace

GgufExport export_gguf(std::shared_ptr<const Checkpoint> source, const ModelConfig& config) {
  CheckedWeights(*source, config,
                 NameStyle::hugging_face);  // complains of tensors that are missing, misshapen or too many
  GgufExport result{write_gguf_config(config), export_tensors(source, config)};
  const std::string what = difference(config, read_back(result, config.vocab));
  if (!what.empty())
    throw_error(ErrorKind::declined, "{}: GGUF cannot say {} for the architecture {}; run the folder with --quantize",
                source->describe(), what, config.architecture);
  return result;
}

}  // namespace ingot
