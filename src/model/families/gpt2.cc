#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/computed_checkpoint.h"
#include "formats/convert_rows.h"
#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

// GPT-2's layers hold their matrices [in, out]; files were published with and without the outermost module, and with
// the masks of attention.
std::shared_ptr<Checkpoint> adapt_gpt2(std::shared_ptr<const Checkpoint> stored, int threads) {
  auto adapted = std::make_shared<ComputedCheckpoint>(stored, threads);
  for (const TensorView& tensor : stored->tensors()) {
    if (tensor.name.ends_with(".attn.bias") || tensor.name.ends_with(".attn.masked_bias")) continue;
    TensorView own = tensor;
    if (!own.name.starts_with("transformer.") && !own.name.starts_with("lm_head."))
      own.name = "transformer." + own.name;
    const bool turned =
        !tensor.is_computed() && tensor.shape.size() == 2 && tensor.name.find(".c_") != std::string::npos;
    if (turned) std::reverse(own.shape.begin(), own.shape.end());
    if (turned)
      adapted->add(own, [&tensor, &from = *stored](std::byte* out, ThreadPool&) {
        transpose(tensor, out);
        from.drop_pages(tensor.data);
      });
    else
      adapted->add(own);
  }
  return adapted;
}

void read_gpt2_hf(const JsonView& json, ModelConfig& config) {
  if (!json.has("n_inner")) config.ffn = 4 * config.hidden;
  if (json.find_bool("scale_attn_by_inverse_layer_idx").value_or(false) ||
      !json.find_bool("scale_attn_weights").value_or(true))
    throw_error(ErrorKind::declined, "{}: scale_attn_by_inverse_layer_idx and unscaled attention are not supported",
                json.name());
}

void write_gpt2_hf(const ModelConfig&, nlohmann::ordered_json& json) { json["activation_function"] = "gelu_new"; }

}  // namespace

const Family families::gpt2 = {.hf = "GPT2LMHeadModel",
                               .model_type = "gpt2",
                               .gguf = "gpt2",
                               .base = {.ffn = 1,  // four times the hidden size, if nothing is said
                                        .max_position = 1024,
                                        .norm = NormKind::layer,
                                        .norm_eps = 1e-5f,
                                        .activation = ActivationKind::gelu_tanh,
                                        .tied_embeddings = true,
                                        .attention_bias = true,
                                        .output_bias = true,
                                        .mlp_bias = true,
                                        .learned_positions = true,
                                        .gated_mlp = false},
                               .keys = {{"hidden_size", "n_embd"},
                                        {"num_hidden_layers", "n_layer"},
                                        {"num_attention_heads", "n_head"},
                                        {"num_key_value_heads", "n_head"},
                                        {"intermediate_size", "n_inner"},
                                        {"max_position_embeddings", "n_positions"},
                                        {"rms_norm_eps", "layer_norm_epsilon"},
                                        {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}},
                               .activation_key = "activation_function",
                               .tensors = {{"token_embd", "transformer.wte"},
                                           {"position_embd", "transformer.wpe"},
                                           {"output_norm", "transformer.ln_f"},
                                           {"blk.{}.", "transformer.h.{}."},
                                           {"attn_norm", "ln_1"},
                                           {"attn_qkv", "attn.c_attn"},
                                           {"attn_output", "attn.c_proj"},
                                           {"ffn_norm", "ln_2"},
                                           {"ffn_up", "mlp.c_fc"},
                                           {"ffn_down", "mlp.c_proj"}},
                               .read_hf = read_gpt2_hf,
                               .write_hf = write_gpt2_hf,
                               .adapt = adapt_gpt2};

}  // namespace ingot
