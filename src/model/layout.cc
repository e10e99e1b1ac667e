#include "model/layout.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "model/families/family.h"

namespace ingot {
namespace {

// GGUF's names of the tensors and Llama's, which most families have too, without ".weight" and ".bias".
const Names kLlamaNames = {
    {"token_embd", "model.embed_tokens"},
    {"output", "lm_head"},
    {"output_norm", "model.norm"},
    {"blk.{}.", "model.layers.{}."},
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.{}.gate_proj"},
    {"ffn_up_exps", "mlp.experts.{}.up_proj"},
    {"ffn_down_exps", "mlp.experts.{}.down_proj"},
};

// Of a head that is the first MTP layer of its model.
const Names kMtpNames = {{"blk.{}.", "model.mtp_layers.0."},
                         {"output_norm", "model.mtp_layers.0.final_layernorm"},
                         {"states_norm", "model.mtp_layers.0.hidden_layernorm"},
                         {"token_norm", "model.mtp_layers.0.token_layernorm"},
                         {"read_states", "model.mtp_layers.0.input_proj"}};

class Builder {
 public:
  Builder(const ModelConfig& config, NameStyle style)
      : c_(config),
        family_(family_of(config)),
        gguf_(style == NameStyle::gguf),
        fused_qkv_(own_name(family_.tensors, kFusedQkv) != kFusedQkv),
        interleaved_(gguf_ && family_.interleaved ? config.head_size : 0) {}

  ModelLayout build() {
    if (c_.mtp_layers > 0) layout_.ignored_beginnings = {"model.mtp_layers."};
    if (mtp_) {
      norm(&ModelWeights::states_norm, nullptr, "states_norm", c_.hidden);
      norm(&ModelWeights::token_norm, nullptr, "token_norm", c_.hidden);
      matrix(&ModelWeights::read_states, "read_states", c_.hidden, 2 * c_.hidden);
      layout_.ignored_beginnings = {"model."};  // the model's own
    } else if (c_.head) {
      matrix(&ModelWeights::read_states, "read_states", c_.hidden, c_.head.reads);
      layout_.ignored.push_back(weight("token_embd"));  // the host's
    } else {
      matrix(&ModelWeights::embedding, "token_embd", c_.vocab, c_.hidden);
    }
    if (c_.learned_positions)
      matrix(&ModelWeights::positions, "position_embd", c_.max_position, c_.hidden).exact = true;
    if (c_.tied_embeddings) {
      layout_.ignored.push_back(weight("output"));  // some tied checkpoints store the copy as well
    } else {
      matrix(&ModelWeights::head, "output", c_.vocab, c_.hidden);
    }
    const size_t last_norm = layout_.weights.size();
    norm(&ModelWeights::final_norm, &ModelWeights::final_norm_bias, "output_norm", c_.hidden);
    for (size_t i = last_norm; i < layout_.weights.size(); ++i) layout_.weights[i].factor = 1 / c_.logit_divisor;
    for (layer_ = 0; layer_ < c_.layers; ++layer_) build_layer();
    return std::move(layout_);
  }

 private:
  static constexpr const char* kFusedQkv = "attn_qkv";

  void build_layer() {
    prefix_ = fmt::format(fmt::runtime(stored("blk.{}.")), layer_);
    norm(&LayerWeights::attention_norm, &LayerWeights::attention_norm_bias, "attn_norm", c_.hidden);
    if (eagle_) norm(&LayerWeights::head_norm, nullptr, "head_norm", c_.hidden);
    build_qkv();
    if (c_.qk_norm) {
      norm(&LayerWeights::q_norm, nullptr, "attn_q_norm", c_.head_size);
      norm(&LayerWeights::k_norm, nullptr, "attn_k_norm", c_.head_size);
    }
    matrix(&LayerWeights::output, "attn_output", c_.hidden, c_.heads * c_.head_size);
    if (c_.output_bias) vector(&LayerWeights::output_bias, {{bias("attn_output"), {c_.hidden}}});
    if (c_.sandwich_norms) norm(&LayerWeights::attention_post_norm, nullptr, "post_attention_norm", c_.hidden);
    norm(&LayerWeights::mlp_norm, &LayerWeights::mlp_norm_bias, "ffn_norm", c_.hidden);
    if (c_.layer(layer_).experts) {
      build_experts();
    } else {
      build_mlp();
    }
    if (c_.sandwich_norms) norm(&LayerWeights::mlp_post_norm, nullptr, "post_ffw_norm", c_.hidden);
  }

  void build_qkv() {
    const int64_t q = c_.heads * c_.head_size;
    const int64_t kv = c_.kv_heads * c_.head_size;
    if (fused_qkv_) {
      matrix(&LayerWeights::qkv, kFusedQkv, q + 2 * kv, c_.hidden);
      if (c_.attention_bias) vector(&LayerWeights::qkv_bias, {{bias(kFusedQkv), {q + 2 * kv}}});
      return;
    }
    const int64_t cols = eagle_ ? 2 * c_.hidden : c_.hidden;
    add(&LayerWeights::qkv, {{weight("attn_q"), {q, cols}, interleaved_},
                             {weight("attn_k"), {kv, cols}, interleaved_},
                             {weight("attn_v"), {kv, cols}}});
    if (c_.attention_bias)
      vector(&LayerWeights::qkv_bias,
             {{bias("attn_q"), {q}, interleaved_}, {bias("attn_k"), {kv}, interleaved_}, {bias("attn_v"), {kv}}});
  }

  void build_mlp() {
    if (c_.gated_mlp) matrix(&LayerWeights::gate, "ffn_gate", c_.ffn, c_.hidden);
    matrix(&LayerWeights::up, "ffn_up", c_.ffn, c_.hidden);
    matrix(&LayerWeights::down, "ffn_down", c_.hidden, c_.ffn);
    if (!c_.mlp_bias) return;
    if (c_.gated_mlp) vector(&LayerWeights::gate_bias, {{bias("ffn_gate"), {c_.ffn}}});
    vector(&LayerWeights::up_bias, {{bias("ffn_up"), {c_.ffn}}});
    vector(&LayerWeights::down_bias, {{bias("ffn_down"), {c_.hidden}}});
  }

  void build_experts() {
    matrix(&LayerWeights::router, "ffn_gate_inp", c_.experts, c_.hidden).exact = true;
    experts(&LayerWeights::expert_gate, "ffn_gate_exps", c_.expert_ffn, c_.hidden);
    experts(&LayerWeights::expert_up, "ffn_up_exps", c_.expert_ffn, c_.hidden);
    experts(&LayerWeights::expert_down, "ffn_down_exps", c_.hidden, c_.expert_ffn);
  }

  // GGUF has one tensor for all experts of a layer, safetensors one each.
  void experts(WeightId LayerWeights::* slot, const char* name, int64_t rows, int64_t cols) {
    std::vector<TensorNeed> parts;
    if (gguf_) parts = {{weight(name), {c_.experts, rows, cols}}};
    for (int64_t e = 0; !gguf_ && e < c_.experts; ++e)
      parts.push_back({fmt::format(fmt::runtime(weight(name)), e), {rows, cols}});
    add(slot, std::move(parts)).groups = c_.experts;
  }

  template <typename Weights>
  void norm(WeightId Weights::* slot, std::type_identity_t<WeightId Weights::*> bias_slot, const char* name,
            int64_t size) {
    vector(slot, {{weight(name), {size}}}).offset = c_.norm_weight_offset;
    if (c_.norm == NormKind::layer && bias_slot != nullptr) vector(bias_slot, {{bias(name), {size}}});
  }

  template <typename Weights>
  WeightNeed& matrix(WeightId Weights::* slot, const char* name, int64_t rows, int64_t cols) {
    return add(slot, {{weight(name), {rows, cols}}});
  }

  template <typename Weights>
  WeightNeed& vector(WeightId Weights::* slot, std::vector<TensorNeed> parts) {
    WeightNeed& need = add(slot, std::move(parts));
    need.vector = need.exact = true;
    return need;
  }

  template <typename Weights>
  WeightNeed& add(WeightId Weights::* slot, std::vector<TensorNeed> parts) {
    WeightNeed& need = layout_.weights.emplace_back();
    need.parts = std::move(parts);
    if constexpr (std::is_same_v<Weights, LayerWeights>) {
      need.layer = layer_;
      need.layer_slot = slot;
    } else {
      need.model_slot = slot;
    }
    return need;
  }

  // What the checkpoint calls the tensor with this name in GGUF.
  const char* stored(const char* name) const {
    if (mtp_)
      if (const char* layer = own_name(kMtpNames, name); layer != name) return layer;
    const char* own = own_name(family_.tensors, name);
    return gguf_ ? name : own != name ? own : own_name(kLlamaNames, name);
  }
  std::string weight(const char* name) const { return prefix_ + stored(name) + ".weight"; }
  std::string bias(const char* name) const { return prefix_ + stored(name) + ".bias"; }

  const ModelConfig& c_;
  const Family& family_;
  const bool gguf_;
  const bool eagle_ = c_.head.kind == ModelConfig::Head::Kind::eagle3,
             mtp_ = c_.head.kind == ModelConfig::Head::Kind::mtp;
  const bool fused_qkv_;  // q, k and v are stored as one tensor
  const int64_t interleaved_;
  int64_t layer_ = 0;
  std::string prefix_;
  ModelLayout layout_;
};

}  // namespace

std::string WeightNeed::name() const {
  if (parts.size() == 1) return parts[0].name;
  return fmt::format("{} ... {}", parts.front().name, parts.back().name);
}

ModelLayout model_layout(const ModelConfig& config, NameStyle style) { return Builder(config, style).build(); }

}  // namespace ingot
