#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

// Which layers have positions: by a list of ones and zeros, else all but every `step`th.
void drop_smollm3_positions(const std::vector<int64_t>& rotates, int64_t step, ModelConfig& config) {
  for (int64_t i = 0; i < config.layers; ++i)
    if (rotates.empty() ? (i + 1) % step == 0 : rotates[static_cast<size_t>(i)] == 0)
      config.per_layer[static_cast<size_t>(i)].rope = LayerConfig::Rope::none;
}

void read_smollm3_hf(const JsonView& json, ModelConfig& config) {
  const std::vector<int64_t> rotates = json.find_ints("no_rope_layers");  // 1: the layer has positions
  if (!rotates.empty() && static_cast<int64_t>(rotates.size()) != config.layers)
    throw_error(ErrorKind::bad_file, "{}: no_rope_layers has {} entries for {} layers", json.name(), rotates.size(),
                config.layers);
  drop_smollm3_positions(rotates, std::max<int64_t>(1, json.find_int("no_rope_layer_interval").value_or(4)), config);
  read_windows(json, switched_window(json), [](int64_t) { return false; }, config);
}

void read_smollm3_gguf(const GgufKeys&, ModelConfig& config) { drop_smollm3_positions({}, 4, config); }

void write_smollm3_hf(const ModelConfig& config, nlohmann::ordered_json& json) {
  for (int64_t i = 0; i < config.layers; ++i)
    json["no_rope_layers"].push_back(config.layer(i).rope == LayerConfig::Rope::none ? 0 : 1);
}

}  // namespace

const Family families::smollm3 = {
    .hf = "SmolLM3ForCausalLM",
    .model_type = "smollm3",
    .gguf = "smollm3",
    .base = {.kv_heads = 4, .max_position = 32768, .rope_theta = 2000000.0, .tied_embeddings = true},
    .settings = {kOutputBias, kAttentionBias, kMlpBias},
    .interleaved = true,
    .read_hf = read_smollm3_hf,
    .read_gguf = read_smollm3_gguf,
    .write_hf = write_smollm3_hf};

}  // namespace ingot
