#include <cmath>

#include "core/error.h"
#include "formats/gguf.h"
#include "model/families/family.h"

namespace ingot {
namespace {

void read_granite_gguf(const GgufKeys& keys, ModelConfig& config) {
  if (!keys.find_double("attention.scale"))
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.head_size));
  if (!keys.find_bool("rope.scaling.finetuned").value_or(true))  // of the hybrid ones
    throw_error(ErrorKind::declined, "{}: a Granite without positions is not supported", keys.file().name());
}

}  // namespace

const Family families::granite = {
    .hf = "GraniteForCausalLM",
    .model_type = "granite",
    .gguf = "granite",
    .base = {.max_position = 2048, .attention_scale = 1},
    .settings = {{&ModelConfig::embedding_scale, "embedding_multiplier", "embedding_scale", 1e6},
                 {&ModelConfig::attention_scale, "attention_multiplier", "attention.scale", 1e6},
                 {&ModelConfig::residual_scale, "residual_multiplier", "residual_scale", 1e6},
                 {&ModelConfig::logit_divisor, "logits_scaling", "logit_scale", 1e6},
                 kOutputBias,
                 kAttentionBias,
                 kMlpBias},
    .interleaved = true,
    .read_gguf = read_granite_gguf};

}  // namespace ingot
