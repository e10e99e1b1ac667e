#include "model/layout.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

namespace ingot {
namespace {

// What the same tensor is called in the kinds of checkpoint, without ".weight" and ".bias". `{}` is the layer.
struct Names {
  const char *embedding, *positions, *head, *final_norm, *layer;
  const char *attention_norm, *q, *k, *v, *qkv, *q_norm, *k_norm, *output, *attention_post_norm;
  const char *mlp_norm, *gate, *up, *down, *mlp_post_norm;
  const char *router, *expert_gate, *expert_up, *expert_down;
};

constexpr Names kGguf = {.embedding = "token_embd",
                         .positions = "position_embd",
                         .head = "output",
                         .final_norm = "output_norm",
                         .layer = "blk.{}.",
                         .attention_norm = "attn_norm",
                         .q = "attn_q",
                         .k = "attn_k",
                         .v = "attn_v",
                         .qkv = "attn_qkv",
                         .q_norm = "attn_q_norm",
                         .k_norm = "attn_k_norm",
                         .output = "attn_output",
                         .attention_post_norm = "post_attention_norm",
                         .mlp_norm = "ffn_norm",
                         .gate = "ffn_gate",
                         .up = "ffn_up",
                         .down = "ffn_down",
                         .mlp_post_norm = "post_ffw_norm",
                         .router = "ffn_gate_inp",
                         .expert_gate = "ffn_gate_exps",
                         .expert_up = "ffn_up_exps",
                         .expert_down = "ffn_down_exps"};

constexpr Names kLlama = {.embedding = "model.embed_tokens",
                          .positions = nullptr,
                          .head = "lm_head",
                          .final_norm = "model.norm",
                          .layer = "model.layers.{}.",
                          .attention_norm = "input_layernorm",
                          .q = "self_attn.q_proj",
                          .k = "self_attn.k_proj",
                          .v = "self_attn.v_proj",
                          .qkv = nullptr,
                          .q_norm = "self_attn.q_norm",
                          .k_norm = "self_attn.k_norm",
                          .output = "self_attn.o_proj",
                          .attention_post_norm = nullptr,
                          .mlp_norm = "post_attention_layernorm",
                          .gate = "mlp.gate_proj",
                          .up = "mlp.up_proj",
                          .down = "mlp.down_proj",
                          .mlp_post_norm = nullptr,
                          .router = "mlp.gate",
                          .expert_gate = "mlp.experts.{}.gate_proj",
                          .expert_up = "mlp.experts.{}.up_proj",
                          .expert_down = "mlp.experts.{}.down_proj"};

constexpr Names gemma_names() {
  Names names = kLlama;
  names.attention_post_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_post_norm = "post_feedforward_layernorm";
  return names;
}

constexpr Names gpt2_names() {
  Names names{};
  names.embedding = "transformer.wte";
  names.positions = "transformer.wpe";
  names.head = "lm_head";
  names.final_norm = "transformer.ln_f";
  names.layer = "transformer.h.{}.";
  names.attention_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.output = "attn.c_proj";
  names.mlp_norm = "ln_2";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}

constexpr Names kGemma = gemma_names();
constexpr Names kGpt2 = gpt2_names();

const Names& names_of(const ModelConfig& config, NameStyle style) {
  if (style == NameStyle::gguf) return kGguf;
  if (config.architecture == "gpt2") return kGpt2;
  return config.sandwich_norms ? kGemma : kLlama;
}

class Builder {
 public:
  Builder(const ModelConfig& config, NameStyle style)
      : c_(config),
        style_(style),
        names_(names_of(config, style)),
        fused_qkv_(config.architecture == "gpt2"),
        transposed_(config.architecture == "gpt2" && style == NameStyle::hugging_face) {
    // llama.cpp's converter interleaves the rotary halves of Q and K for these architectures.
    if (style == NameStyle::gguf && (config.architecture == "llama" || config.architecture == "smollm3"))
      interleaved_ = config.head_size;
  }

  ModelLayout build() {
    matrix(&ModelWeights::embedding, weight(names_.embedding), c_.vocab, c_.hidden);
    if (c_.learned_positions) matrix(&ModelWeights::positions, weight(names_.positions), c_.max_position, c_.hidden);
    if (c_.tied_embeddings) {
      layout_.ignored.push_back(weight(names_.head));  // some tied checkpoints store the copy as well
    } else {
      matrix(&ModelWeights::head, weight(names_.head), c_.vocab, c_.hidden);
    }
    norm(&ModelWeights::final_norm, &ModelWeights::final_norm_bias, names_.final_norm, c_.hidden);
    for (layer_ = 0; layer_ < c_.layers; ++layer_) build_layer();
    return std::move(layout_);
  }

 private:
  void build_layer() {
    prefix_ = fmt::format(fmt::runtime(names_.layer), layer_);
    norm(&LayerWeights::attention_norm, &LayerWeights::attention_norm_bias, names_.attention_norm, c_.hidden);
    build_qkv();
    if (c_.qk_norm) {
      norm(&LayerWeights::q_norm, nullptr, names_.q_norm, c_.head_size);
      norm(&LayerWeights::k_norm, nullptr, names_.k_norm, c_.head_size);
    }
    matrix(&LayerWeights::output, weight(names_.output), c_.hidden, c_.heads * c_.head_size);
    if (c_.output_bias) vector(&LayerWeights::output_bias, {{bias(names_.output), {c_.hidden}}});
    if (c_.sandwich_norms) norm(&LayerWeights::attention_post_norm, nullptr, names_.attention_post_norm, c_.hidden);
    norm(&LayerWeights::mlp_norm, &LayerWeights::mlp_norm_bias, names_.mlp_norm, c_.hidden);
    if (c_.layer(layer_).experts) {
      build_experts();
    } else {
      build_mlp();
    }
    if (c_.sandwich_norms) norm(&LayerWeights::mlp_post_norm, nullptr, names_.mlp_post_norm, c_.hidden);
  }

  void build_qkv() {
    const int64_t q = c_.heads * c_.head_size;
    const int64_t kv = c_.kv_heads * c_.head_size;
    if (fused_qkv_) {
      matrix(&LayerWeights::qkv, weight(names_.qkv), q + 2 * kv, c_.hidden);
      if (c_.attention_bias) vector(&LayerWeights::qkv_bias, {{bias(names_.qkv), {q + 2 * kv}}});
      return;
    }
    add(&LayerWeights::qkv, false,
        {{weight(names_.q), {q, c_.hidden}, interleaved_},
         {weight(names_.k), {kv, c_.hidden}, interleaved_},
         {weight(names_.v), {kv, c_.hidden}}});
    if (c_.attention_bias)
      vector(&LayerWeights::qkv_bias,
             {{bias(names_.q), {q}, interleaved_}, {bias(names_.k), {kv}, interleaved_}, {bias(names_.v), {kv}}});
  }

  void build_mlp() {
    if (c_.gated_mlp) matrix(&LayerWeights::gate, weight(names_.gate), c_.ffn, c_.hidden);
    matrix(&LayerWeights::up, weight(names_.up), c_.ffn, c_.hidden);
    matrix(&LayerWeights::down, weight(names_.down), c_.hidden, c_.ffn);
    if (!c_.mlp_bias) return;
    if (c_.gated_mlp) vector(&LayerWeights::gate_bias, {{bias(names_.gate), {c_.ffn}}});
    vector(&LayerWeights::up_bias, {{bias(names_.up), {c_.ffn}}});
    vector(&LayerWeights::down_bias, {{bias(names_.down), {c_.hidden}}});
  }

  void build_experts() {
    add(&LayerWeights::router, false, {{weight(names_.router), {c_.experts, c_.hidden}}});
    experts(&LayerWeights::expert_gate, names_.expert_gate, c_.expert_ffn, c_.hidden);
    experts(&LayerWeights::expert_up, names_.expert_up, c_.expert_ffn, c_.hidden);
    experts(&LayerWeights::expert_down, names_.expert_down, c_.hidden, c_.expert_ffn);
  }

  // GGUF has one tensor for all experts of a layer, safetensors one each.
  void experts(WeightId LayerWeights::* slot, const char* name, int64_t rows, int64_t cols) {
    std::vector<TensorNeed> parts;
    if (style_ == NameStyle::gguf) {
      parts = {{weight(name), {c_.experts, rows, cols}}};
    } else {
      for (int64_t e = 0; e < c_.experts; ++e)
        parts.push_back({prefix_ + fmt::format(fmt::runtime(name), e) + ".weight", {rows, cols}});
    }
    add(slot, false, std::move(parts)).groups = c_.experts;
  }

  template <typename Weights>
  void norm(WeightId Weights::* slot, std::type_identity_t<WeightId Weights::*> bias_slot, const char* name,
            int64_t size) {
    vector(slot, {{weight(name), {size}}}).offset = c_.norm_weight_offset;
    if (c_.norm == NormKind::layer && bias_slot != nullptr) vector(bias_slot, {{bias(name), {size}}});
  }

  template <typename Weights>
  void matrix(WeightId Weights::* slot, std::string name, int64_t rows, int64_t cols) {
    const bool transposed = transposed_ && std::is_same_v<Weights, LayerWeights>;
    TensorNeed part{std::move(name), {rows, cols}};
    if (transposed) part = {std::move(part.name), {cols, rows}, 0, true};
    add(slot, false, {std::move(part)});
  }

  template <typename Weights>
  WeightNeed& vector(WeightId Weights::* slot, std::vector<TensorNeed> parts) {
    return add(slot, true, std::move(parts));
  }

  WeightNeed& add(WeightId LayerWeights::* slot, bool vector, std::vector<TensorNeed> parts) {
    WeightNeed& need = layout_.weights.emplace_back();
    need.parts = std::move(parts);
    need.layer = layer_;
    need.layer_slot = slot;
    need.vector = vector;
    return need;
  }
  WeightNeed& add(WeightId ModelWeights::* slot, bool vector, std::vector<TensorNeed> parts) {
    WeightNeed& need = layout_.weights.emplace_back();
    need.parts = std::move(parts);
    need.model_slot = slot;
    need.vector = vector;
    return need;
  }

  std::string weight(const char* name) const { return prefix_ + name + ".weight"; }
  std::string bias(const char* name) const { return prefix_ + name + ".bias"; }

  const ModelConfig& c_;
  const NameStyle style_;
  const Names& names_;
  const bool fused_qkv_;   // q, k and v are stored as one tensor
  const bool transposed_;  // matrices of the layers are stored [in, out]
  int64_t interleaved_ = 0;
  int64_t layer_ = 0;
  std::string prefix_;
  ModelLayout layout_;
};

}  // namespace

std::string WeightNeed::name() const {
  if (parts.size() == 1) return parts[0].name;
  return fmt::format("{} ... {}", parts.front().name, parts.back().name);
}

std::string stored_name(const Checkpoint& checkpoint, const std::string& name) {
  constexpr std::string_view kOuter = "transformer.";
  if (!name.starts_with(kOuter) || checkpoint.find(name) != nullptr) return name;
  const std::string inner = name.substr(kOuter.size());
  return checkpoint.find(inner) != nullptr ? inner : name;
}

ModelLayout model_layout(const ModelConfig& config, NameStyle style) { return Builder(config, style).build(); }

}  // namespace ingot
