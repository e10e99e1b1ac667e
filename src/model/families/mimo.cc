#include "formats/json.h"
#include "model/families/family.h"

// MiMo: Qwen 2 with layers that guess (MTP, multi-token prediction). Row p of the first of them reads the model's final
// state of position p and the token at p + 1, each normed, side by side in this order; a product brings both to the
// model's width, a decoder layer and a norm follow, and the model's own head guesses the token at p + 2. The guess
// behind it takes the result of that norm in the place of the model's state. The row at position 0 sees no token.
namespace ingot {
namespace {

void read_mimo(const JsonView& json, ModelConfig& config) {
  read_late_windows(json, config);
  config.mtp_layers = json.find_int("num_nextn_predict_layers").value_or(0);
}

}  // namespace

ModelConfig mtp_head(ModelConfig model) {
  model.head = {.kind = ModelConfig::Head::Kind::mtp, .reads = model.hidden, .vocab = model.vocab};
  model.layers = 1;
  model.mtp_layers = 0;
  model.per_layer = {LayerConfig()};
  model.eos_ids.clear();
  return model;
}

const Family families::mimo = {.hf = "MiMoForCausalLM",
                               .model_type = "mimo",
                               .gguf = "mimo",
                               .reads_gguf = false,
                               .base = {.max_position = 32768, .attention_bias = true},
                               .settings = {kAttentionBias},
                               .read_hf = read_mimo};

}  // namespace ingot
