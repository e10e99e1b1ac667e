#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "model/config_read.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

enum class Family { llama, mistral, qwen2, qwen3, qwen3_moe, gpt2, smollm3, gemma3 };

struct FamilyNames {
  Family family;
  const char *architecture, *model_type;
  const char* canonical;  // ModelConfig::architecture; GGUF's name
};
constexpr FamilyNames kFamilies[] = {
    {Family::llama, "LlamaForCausalLM", "llama", "llama"},
    {Family::mistral, "MistralForCausalLM", "mistral", "llama"},
    {Family::qwen2, "Qwen2ForCausalLM", "qwen2", "qwen2"},
    {Family::qwen3, "Qwen3ForCausalLM", "qwen3", "qwen3"},
    {Family::qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe"},
    {Family::gpt2, "GPT2LMHeadModel", "gpt2", "gpt2"},
    {Family::smollm3, "SmolLM3ForCausalLM", "smollm3", "smollm3"},
    {Family::gemma3, "Gemma3ForCausalLM", "gemma3_text", "gemma3"},
};

const FamilyNames& read_family(const JsonView& json) {
  std::vector<std::string> names = json.find_strings("architectures");
  if (names.empty()) {
    const std::string type = json.find_string("model_type").value_or("");
    for (const FamilyNames& family : kFamilies)
      if (type == family.model_type) return family;
    if (type.empty()) throw_error(ErrorKind::bad_file, "{}: architectures is missing", json.name());
    names = {type};
  }
  std::vector<std::string_view> supported;
  for (const FamilyNames& family : kFamilies) {
    if (names.size() == 1 && names[0] == family.architecture) return family;
    supported.push_back(family.architecture);
  }
  throw_error(ErrorKind::declined, "{}: architecture {} is not supported; supported are {}", json.name(),
              printable(fmt::format("{}", fmt::join(names, ", "))), fmt::join(supported, ", "));
}

ActivationKind read_activation(const JsonView& json, const char* key, const char* fallback) {
  const std::string name = json.find_string(key).value_or(fallback);
  if (name == "silu" || name == "swish") return ActivationKind::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ActivationKind::gelu_tanh;
  if (name == "gelu") return ActivationKind::gelu;
  throw_error(ErrorKind::declined, "{}: {} {} is not supported; supported are silu, gelu and gelu_pytorch_tanh",
              json.name(), key, printable(name));
}

// Rotary settings have lived in three places: rope_theta with rope_scaling {"type": ...}, the same with {"rope_type":
// ...}, and rope_parameters {"rope_type": ..., "rope_theta": ...}, which may be one object for each kind of layer.
void read_rope(const JsonView& json, double default_theta, ModelConfig& config, ConfigKeys& keys) {
  std::optional<JsonView> rope = json.find_object("rope_parameters");
  if (!rope) rope = json.find_object("rope_scaling");
  if (rope)
    if (std::optional<JsonView> full = rope->find_object("full_attention")) {
      if (const auto local = rope->find_object("sliding_attention"))
        config.local_rope_theta = local->find_double("rope_theta").value_or(config.local_rope_theta);
      rope = full;
    }
  config.rope_theta = json.find_double("rope_theta").value_or(default_theta);
  config.rope_dims = config.head_size;
  double rotated = json.find_double("partial_rotary_factor").value_or(1.0);
  if (rope) {
    if (const auto theta = rope->find_double("rope_theta")) {
      config.rope_theta = *theta;
      keys.rope_theta = rope->path_of("rope_theta");
    }
    rotated = rope->find_double("partial_rotary_factor").value_or(rotated);
  }
  if (rotated != 1.0)
    throw_error(ErrorKind::declined, "{}: partial_rotary_factor {:g} is not supported; supported is 1", json.name(),
                rotated);
  if (!rope) return;

  keys.rope_factor = rope->path_of("factor");
  keys.rope_original = rope->path_of("original_max_position_embeddings");
  RopeScaling& scaling = config.rope_scaling;
  const std::string kind = rope->find_string("rope_type").value_or(rope->find_string("type").value_or("default"));
  if (kind == "default") return;
  // Newer configs keep the original length beside max_position_embeddings.
  scaling.original_max_position =
      rope->find_int("original_max_position_embeddings")
          .value_or(json.find_int("original_max_position_embeddings").value_or(config.max_position));
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = rope->need_double("factor");
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = rope->need_double("factor");
    scaling.low_freq_factor = rope->need_double("low_freq_factor");
    scaling.high_freq_factor = rope->need_double("high_freq_factor");
  } else if (kind == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    if (const auto factor = rope->find_double("factor")) {
      scaling.factor = *factor;
    } else if (scaling.original_max_position > 0) {
      scaling.factor = static_cast<double>(config.max_position) / static_cast<double>(scaling.original_max_position);
    }
    // Zero stands for "not given" in these, as it does for transformers.
    const auto given = [&](std::string_view key, double fallback) {
      const double value = rope->find_double(key).value_or(0.0);
      return value == 0.0 ? fallback : value;
    };
    scaling.beta_fast = given("beta_fast", 32.0);
    scaling.beta_slow = given("beta_slow", 1.0);
    scaling.mscale = given("mscale", 0.0);
    scaling.mscale_all_dim = given("mscale_all_dim", 0.0);
    scaling.attention_factor = given("attention_factor", 0.0);
    scaling.truncate = rope->find_bool("truncate").value_or(true);
  } else {
    throw_error(ErrorKind::declined, "{}: {} {} is not supported; supported are default, linear, llama3 and yarn",
                json.name(), rope->path_of("rope_type"), printable(kind));
  }
}

// "bfloat16" is bf16 everywhere else.
std::string read_dtype(const JsonView& json) {
  const std::string name = json.find_string("torch_dtype").value_or(json.find_string("dtype").value_or(""));
  if (name == "bfloat16") return "bf16";
  if (name == "float16") return "f16";
  return name == "float32" ? "f32" : "";
}

std::vector<int32_t> read_ids(const JsonView& json, std::string_view key) {
  std::vector<int32_t> ids;
  for (int64_t id : json.find_ints(key)) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max())
      throw_error(ErrorKind::bad_file, "{}: {} = {} is not a token id", json.name(), json.path_of(key), id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

ConfigKeys hf_keys(const std::string& where, bool gpt2) {
  ConfigKeys keys = {.where = where,
                     .hidden = "hidden_size",
                     .layers = "num_hidden_layers",
                     .heads = "num_attention_heads",
                     .kv_heads = "num_key_value_heads",
                     .head_size = "head_dim",
                     .ffn = "intermediate_size",
                     .vocab = "vocab_size",
                     .max_position = "max_position_embeddings",
                     .norm_eps = "rms_norm_eps",
                     .sliding_window = "sliding_window",
                     .rope_theta = "rope_theta",
                     .rope_dims = "head_dim",
                     .rope_factor = "rope_scaling.factor",
                     .rope_original = "rope_scaling.original_max_position_embeddings",
                     .bos = "bos_token_id",
                     .eos = "eos_token_id",
                     .experts = "num_experts",
                     .experts_per_token = "num_experts_per_tok",
                     .expert_ffn = "moe_intermediate_size"};
  if (gpt2) {
    keys.hidden = "n_embd";
    keys.layers = "n_layer";
    keys.heads = keys.kv_heads = "n_head";
    keys.ffn = "n_inner";
    keys.max_position = "n_positions";
    keys.norm_eps = "layer_norm_epsilon";
  }
  return keys;
}

// The window of each layer: layer_types where the config has them, else `sliding(layer)`.
template <typename F>
void read_windows(const JsonView& json, ModelConfig& config, F&& sliding) {
  const std::vector<std::string> types = json.find_strings("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != config.layers)
    throw_error(ErrorKind::bad_file, "{}: layer_types has {} entries for {} layers", json.name(), types.size(),
                config.layers);
  for (int64_t i = 0; i < config.layers; ++i) {
    bool slides = sliding(i);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(i)];
      if (type != "full_attention" && type != "sliding_attention")
        throw_error(ErrorKind::declined,
                    "{}: layer_types {} is not supported; supported are full_attention and sliding_attention",
                    json.name(), printable(type));
      slides = type == "sliding_attention";
    }
    if (slides && config.sliding_window <= 0)
      throw_error(ErrorKind::bad_file, "{}: layer {} slides but sliding_window is missing", json.name(), i);
    config.per_layer[static_cast<size_t>(i)].window = slides ? config.sliding_window : 0;
  }
}

// Which layers have experts.
void read_experts(const JsonView& json, ModelConfig& c) {
  c.experts = json.need_int("num_experts");
  c.experts_per_token = json.need_int("num_experts_per_tok");
  c.expert_ffn = json.need_int("moe_intermediate_size");
  c.norm_expert_weights = json.find_bool("norm_topk_prob").value_or(false);
  const std::vector<int64_t> dense = json.find_ints("mlp_only_layers");
  const int64_t step = std::max<int64_t>(1, json.find_int("decoder_sparse_step").value_or(1));
  for (int64_t i = 0; i < c.layers; ++i)
    c.per_layer[static_cast<size_t>(i)].experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
}

// Values that a config may leave out.
struct Defaults {
  int64_t kv_heads = 0;   // 0: as many as heads
  int64_t head_size = 0;  // 0: hidden / heads
  int64_t max_position = 2048;
  double rope_theta = 10000.0;
  bool tied = false;
};
Defaults defaults_of(Family family) {
  switch (family) {
    case Family::llama: return {};
    case Family::mistral: return {.kv_heads = 8, .max_position = 131072};
    case Family::qwen2: return {.max_position = 32768};
    case Family::qwen3:
    case Family::qwen3_moe: return {.head_size = 128, .max_position = 32768};
    case Family::gpt2: return {.max_position = 1024, .tied = true};
    case Family::smollm3: return {.kv_heads = 4, .max_position = 32768, .rope_theta = 2000000.0, .tied = true};
    case Family::gemma3:
      return {.kv_heads = 4, .head_size = 256, .max_position = 131072, .rope_theta = 1000000.0, .tied = true};
  }
  return {};
}

// All that is particular to a family. Everything else is the same for all.
void apply_family(const JsonView& json, Family family, ModelConfig& c) {
  const auto flag = [&](const char* key) { return json.find_bool(key).value_or(false); };
  const auto biases = [&] { c.attention_bias = c.output_bias = flag("attention_bias"); };
  const int64_t window = json.find_int("sliding_window").value_or(0);
  const auto never = [](int64_t) { return false; };
  c.per_layer.assign(static_cast<size_t>(c.layers), {});
  switch (family) {
    case Family::llama:
      biases();
      c.mlp_bias = flag("mlp_bias");
      return;
    case Family::mistral:  // null turns the window off; 4096 is the default
      c.sliding_window = json.value().contains("sliding_window") ? window : 4096;
      return read_windows(json, c, [&](int64_t) { return c.sliding_window > 0; });
    case Family::qwen2:
    case Family::qwen3: {
      c.qk_norm = family == Family::qwen3;
      if (c.qk_norm)
        biases();
      else
        c.attention_bias = true;
      c.sliding_window = flag("use_sliding_window") ? window : 0;
      const int64_t first = json.find_int("max_window_layers").value_or(28);
      return read_windows(json, c, [&](int64_t i) { return c.sliding_window > 0 && i >= first; });
    }
    case Family::qwen3_moe:
      c.qk_norm = true;
      biases();
      c.sliding_window = flag("use_sliding_window") ? window : 0;
      read_experts(json, c);
      return read_windows(json, c, [&](int64_t) { return c.sliding_window > 0; });
    case Family::gpt2:
      c.norm = NormKind::layer;
      c.learned_positions = true;
      c.gated_mlp = false;
      c.attention_bias = c.output_bias = c.mlp_bias = true;
      if (flag("scale_attn_by_inverse_layer_idx") || !json.find_bool("scale_attn_weights").value_or(true))
        throw_error(ErrorKind::declined, "{}: scale_attn_by_inverse_layer_idx and unscaled attention are not supported",
                    json.name());
      for (LayerConfig& layer : c.per_layer) layer.rope = LayerConfig::Rope::none;
      return;
    case Family::smollm3: {
      biases();
      c.mlp_bias = flag("mlp_bias");
      c.sliding_window = flag("use_sliding_window") ? window : 0;
      const std::vector<int64_t> rotates = json.find_ints("no_rope_layers");  // 1: the layer has positions
      const int64_t step = std::max<int64_t>(1, json.find_int("no_rope_layer_interval").value_or(4));
      if (!rotates.empty() && static_cast<int64_t>(rotates.size()) != c.layers)
        throw_error(ErrorKind::bad_file, "{}: no_rope_layers has {} entries for {} layers", json.name(), rotates.size(),
                    c.layers);
      for (int64_t i = 0; i < c.layers; ++i)
        if (rotates.empty() ? (i + 1) % step == 0 : rotates[static_cast<size_t>(i)] == 0)
          c.per_layer[static_cast<size_t>(i)].rope = LayerConfig::Rope::none;
      return read_windows(json, c, never);
    }
    case Family::gemma3: {
      c.sandwich_norms = c.qk_norm = true;
      c.norm_weight_offset = 1;
      c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
      c.attention_scale = static_cast<float>(1 / std::sqrt(json.find_double("query_pre_attn_scalar").value_or(256.0)));
      c.sliding_window = json.find_int("sliding_window").value_or(4096);
      c.local_rope_theta = json.find_double("rope_local_base_freq").value_or(10000.0);
      const int64_t pattern = json.find_int("sliding_window_pattern").value_or(6);
      if (pattern < 1) throw_error(ErrorKind::bad_file, "{}: sliding_window_pattern is {}", json.name(), pattern);
      for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
        if (json.has(key)) throw_error(ErrorKind::declined, "{}: {} is not supported", json.name(), key);
      if (flag("use_bidirectional_attention"))
        throw_error(ErrorKind::declined, "{}: use_bidirectional_attention is not supported", json.name());
      read_windows(json, c, [&](int64_t i) { return (i + 1) % pattern != 0; });
      for (LayerConfig& layer : c.per_layer)
        if (layer.window > 0) layer.rope = LayerConfig::Rope::local;
      return;
    }
  }
}

ModelConfig build_config(const JsonView& json, const JsonView* generation) {
  const FamilyNames& names = read_family(json);
  const Family family = names.family;
  const Defaults defaults = defaults_of(family);
  const bool gpt2 = family == Family::gpt2;
  ConfigKeys keys = hf_keys(json.name(), gpt2);
  ModelConfig config;
  config.packed = read_packed_format(json);
  config.architecture = names.canonical;
  config.name = printable(json.find_string("_name_or_path").value_or(""));
  config.hidden = json.need_int(keys.hidden);
  config.layers = json.need_int(keys.layers);
  config.heads = json.need_int(keys.heads);
  config.kv_heads = config.heads;
  if (!gpt2)
    config.kv_heads = json.find_int(keys.kv_heads).value_or(defaults.kv_heads > 0 ? defaults.kv_heads : config.heads);
  config.ffn = gpt2 ? json.find_int(keys.ffn).value_or(4 * config.hidden) : json.need_int(keys.ffn);
  config.vocab = json.need_int("vocab_size");
  config.max_position = json.find_int(keys.max_position).value_or(defaults.max_position);
  config.norm_eps = static_cast<float>(json.find_double(keys.norm_eps).value_or(gpt2 ? 1e-5 : 1e-6));
  config.activation = gpt2                       ? read_activation(json, "activation_function", "gelu_new")
                      : family == Family::gemma3 ? read_activation(json, "hidden_activation", "gelu_pytorch_tanh")
                                                 : read_activation(json, "hidden_act", "silu");
  config.tied_embeddings = json.find_bool("tie_word_embeddings").value_or(defaults.tied);
  // Lists of layers are made below: this one number is checked before them.
  check_layers(config, keys);
  apply_family(json, family, config);

  if (const auto size = json.find_int("head_dim")) {
    config.head_size = *size;
  } else if (defaults.head_size > 0) {
    config.head_size = defaults.head_size;
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0)
      throw_error(ErrorKind::bad_file, "{}: {} = {} is not a multiple of {} = {}", json.name(), keys.hidden,
                  config.hidden, keys.heads, config.heads);
    config.head_size = config.hidden / config.heads;
  }
  if (!config.learned_positions) read_rope(json, defaults.rope_theta, config, keys);
  config.weight_format = read_dtype(json);

  if (const std::vector<int32_t> bos = read_ids(json, "bos_token_id"); !bos.empty()) config.bos_id = bos[0];
  if (generation != nullptr) config.eos_ids = read_ids(*generation, "eos_token_id");
  if (config.eos_ids.empty()) config.eos_ids = read_ids(json, "eos_token_id");
  check_config(config, keys);
  return config;
}

}  // namespace

ModelConfig read_hf_config(const fs::path& dir) {
  const nlohmann::json json = read_json_file(dir / "config.json");
  const JsonView view(json, (dir / "config.json").string());
  const fs::path generation_path = dir / "generation_config.json";
  ModelConfig config;
  if (fs::exists(generation_path)) {
    const nlohmann::json generation = read_json_file(generation_path);
    const JsonView generation_view(generation, generation_path.string());
    config = build_config(view, &generation_view);
  } else {
    config = build_config(view, nullptr);
  }
  if (config.name.empty()) config.name = printable(fs::absolute(dir).lexically_normal().filename().string());
  return config;
}

ModelConfig read_hf_config_text(std::string_view config, std::string_view generation_config) {
  const nlohmann::json json = parse_json(config, "config.json");
  const JsonView view(json, "config.json");
  if (generation_config.empty()) return build_config(view, nullptr);
  const nlohmann::json generation = parse_json(generation_config, "generation_config.json");
  const JsonView generation_view(generation, "generation_config.json");
  return build_config(view, &generation_view);
}

}  // namespace ingot
