#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

void read_qwen3_moe_hf(const JsonView& json, ModelConfig& config) {
  config.norm_expert_weights = json.find_bool("norm_topk_prob").value_or(false);
  const std::vector<int64_t> dense = json.find_ints("mlp_only_layers");
  const int64_t step = std::max<int64_t>(1, json.find_int("decoder_sparse_step").value_or(1));
  for (int64_t i = 0; i < config.layers; ++i)
    config.per_layer[static_cast<size_t>(i)].experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  const int64_t window = switched_window(json);
  read_windows(json, window, [window](int64_t) { return window > 0; }, config);
}

void read_qwen3_moe_gguf(const GgufKeys& keys, ModelConfig& config) {
  config.norm_expert_weights = true;
  for (size_t i = 0; i < config.per_layer.size(); ++i)
    config.per_layer[i].experts = keys.file().find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
}

void write_qwen3_moe_hf(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["norm_topk_prob"] = config.norm_expert_weights;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    if (!config.layer(i).experts) json["mlp_only_layers"].push_back(i);
}

}  // namespace

const Family families::qwen3_moe = {
    .hf = "Qwen3MoeForCausalLM",
    .model_type = "qwen3_moe",
    .gguf = "qwen3moe",
    .base = {.head_size = 128, .max_position = 32768, .qk_norm = true},
    .settings = {{&ModelConfig::experts, "num_experts", "expert_count", 1 << 12},
                 kExpertsPerToken,
                 {&ModelConfig::expert_ffn, "moe_intermediate_size", "expert_feed_forward_length", 1 << 22},
                 kOutputBias,
                 kAttentionBias},
    .read_hf = read_qwen3_moe_hf,
    .read_gguf = read_qwen3_moe_gguf,
    .write_hf = write_qwen3_moe_hf};

}  // namespace ingot
