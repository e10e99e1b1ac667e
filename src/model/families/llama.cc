#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace ingot {
namespace {

void read_llama_gguf(const GgufKeys&, ModelConfig& config) {
  for (LayerConfig& layer : config.per_layer) layer.window = config.sliding_window;
}

// GGUF has one architecture for both; Llama's config.json knows no window.
void write_llama_hf(const ModelConfig& config, nlohmann::ordered_json& json) {
  if (config.sliding_window == 0) return;
  json["architectures"] = {"MistralForCausalLM"};
  json["model_type"] = "mistral";
  json["sliding_window"] = config.sliding_window;
}

}  // namespace

const Family families::llama = {.hf = "LlamaForCausalLM",
                                .model_type = "llama",
                                .gguf = "llama",
                                .base = {.max_position = 2048},
                                .settings = {kOutputBias, kAttentionBias, kMlpBias},
                                .interleaved = true,
                                .read_gguf = read_llama_gguf,
                                .write_hf = write_llama_hf};

}  // namespace ingot
