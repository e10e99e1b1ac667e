#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "formats/json.h"
#include "model/families/family.h"

namespace ingot {
namespace {

void read_gemma3_hf(const JsonView& json, ModelConfig& config) {
  config.norm_weight_offset = 1;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.attention_scale = static_cast<float>(1 / std::sqrt(json.find_double("query_pre_attn_scalar").value_or(256.0)));
  if (!std::isfinite(config.attention_scale))
    throw_error(ErrorKind::bad_file, "{}: query_pre_attn_scalar must be above 0", json.name());
  config.local_rope_theta = json.find_double("rope_local_base_freq").value_or(10000.0);
  const int64_t pattern = json.find_int("sliding_window_pattern").value_or(6);
  if (pattern < 1) throw_error(ErrorKind::bad_file, "{}: sliding_window_pattern is {}", json.name(), pattern);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (json.has(key)) throw_error(ErrorKind::declined, "{}: {} is not supported", json.name(), key);
  if (json.find_bool("use_bidirectional_attention").value_or(false))
    throw_error(ErrorKind::declined, "{}: use_bidirectional_attention is not supported", json.name());
  const int64_t window = json.find_int("sliding_window").value_or(4096);
  read_windows(json, window, [pattern](int64_t layer) { return (layer + 1) % pattern != 0; }, config);
  for (LayerConfig& layer : config.per_layer)
    if (layer.window > 0) layer.rope = LayerConfig::Rope::local;
}

// Which layers are local: by a list of the file, else all but every `period`th, a number of the file or 6.
std::function<bool(int64_t)> gemma3_local_layers(const GgufKeys& keys, int64_t layers) {
  const std::string name = keys.full("attention.sliding_window_pattern");
  const GgufValue* value = keys.file().find_value(name);
  if (value != nullptr)
    if (const std::vector<int64_t>* flags = std::get_if<std::vector<int64_t>>(value)) {
      if (static_cast<int64_t>(flags->size()) != layers)
        throw_error(ErrorKind::bad_file, "{}: {} has {} entries for {} layers", keys.file().name(), name, flags->size(),
                    layers);
      return [flags](int64_t layer) { return (*flags)[static_cast<size_t>(layer)] != 0; };
    }
  const int64_t period = std::max<int64_t>(1, keys.file().get_int(name).value_or(6));
  return [period](int64_t layer) { return (layer + 1) % period != 0; };
}

void read_gemma3_gguf(const GgufKeys& keys, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  if (config.layers == 62 && config.heads > 0)  // Gemma 3 27B scales by another size than its head's
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden / config.heads));
  if (keys.find_double("final_logit_softcapping").value_or(0) != 0)
    throw_error(ErrorKind::declined, "{}: {} is not supported", keys.file().name(),
                keys.full("final_logit_softcapping"));
  if (config.sliding_window == 0) return;
  config.local_rope_theta = keys.find_double("rope.freq_base_swa").value_or(10000.0);
  const auto is_local = gemma3_local_layers(keys, config.layers);
  for (int64_t i = 0; i < config.layers; ++i)
    if (is_local(i))
      config.per_layer[static_cast<size_t>(i)] = {.rope = LayerConfig::Rope::local, .window = config.sliding_window};
}

void write_gemma3_hf(const ModelConfig& config, nlohmann::ordered_json& json) {
  const float scale = config.attention_scale;
  json["query_pre_attn_scalar"] = scale == 0 ? config.head_size : std::llround(1 / (scale * scale));
  json["sliding_window"] = config.sliding_window;
  json["rope_local_base_freq"] = config.local_rope_theta;
  for (int64_t i = 0; i < config.layers; ++i)
    json["layer_types"].push_back(config.layer(i).window > 0 ? "sliding_attention" : "full_attention");
}

// llama.cpp looks for a window in no other of our architectures.
void write_gemma3_gguf(const ModelConfig& config, GgufValues& values) {
  values.put_u32("gemma3.attention.sliding_window", config.sliding_window);
  values.put_f32("gemma3.rope.freq_base_swa", config.local_rope_theta);
}

}  // namespace

const Family families::gemma3 = {.hf = "Gemma3ForCausalLM",
                                 .model_type = "gemma3_text",
                                 .gguf = "gemma3",
                                 .base = {.kv_heads = 4,
                                          .head_size = 256,
                                          .max_position = 131072,
                                          .activation = ActivationKind::gelu_tanh,
                                          .rope_theta = 1000000.0,
                                          .tied_embeddings = true,
                                          .qk_norm = true,
                                          .sandwich_norms = true},
                                 .activation_key = "hidden_activation",
                                 .tensors = {{"post_attention_norm", "post_attention_layernorm"},
                                             {"ffn_norm", "pre_feedforward_layernorm"},
                                             {"post_ffw_norm", "post_feedforward_layernorm"}},
                                 .read_hf = read_gemma3_hf,
                                 .read_gguf = read_gemma3_gguf,
                                 .write_hf = write_gemma3_hf,
                                 .write_gguf = write_gemma3_gguf};

}  // namespace ingot
