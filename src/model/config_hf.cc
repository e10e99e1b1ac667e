#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "model/config_read.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// The decoders that are the same as Llama's but for defaults.
enum class Family { llama, mistral };

Family read_family(const JsonView& json) {
  std::vector<std::string> names = json.find_strings("architectures");
  if (names.empty()) {
    const std::string type = json.find_string("model_type").value_or("");
    if (type == "llama") return Family::llama;
    if (type == "mistral") return Family::mistral;
    if (type.empty()) throw_error(ErrorKind::bad_file, "{}: architectures is missing", json.name());
    names = {type};
  }
  if (names.size() == 1 && names[0] == "LlamaForCausalLM") return Family::llama;
  if (names.size() == 1 && names[0] == "MistralForCausalLM") return Family::mistral;
  throw_error(ErrorKind::declined,
              "{}: architecture {} is not supported; supported are LlamaForCausalLM and MistralForCausalLM",
              json.name(), printable(fmt::format("{}", fmt::join(names, ", "))));
}

ActivationKind read_activation(const JsonView& json) {
  const std::string name = json.find_string("hidden_act").value_or("silu");
  if (name == "silu" || name == "swish") return ActivationKind::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ActivationKind::gelu_tanh;
  if (name == "gelu") return ActivationKind::gelu;
  throw_error(ErrorKind::declined, "{}: hidden_act {} is not supported; supported are silu, gelu and gelu_pytorch_tanh",
              json.name(), printable(name));
}

// Rotary settings have lived in three places: rope_theta with rope_scaling {"type": ...}, the same with {"rope_type":
// ...}, and rope_parameters {"rope_type": ..., "rope_theta": ...}.
void read_rope(const JsonView& json, ModelConfig& config, ConfigKeys& keys) {
  std::optional<JsonView> rope = json.find_object("rope_parameters");
  if (!rope) rope = json.find_object("rope_scaling");
  config.rope_theta = json.find_double("rope_theta").value_or(10000.0);
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

ConfigKeys hf_keys(const std::string& where) {
  return {.where = where,
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
          .eos = "eos_token_id"};
}

ModelConfig build_config(const JsonView& json, const JsonView* generation) {
  const Family family = read_family(json);
  if (const auto quantization = json.find_object("quantization_config"))
    throw_error(ErrorKind::declined,
                "{}: weights quantized with {} are not supported; use the unquantized model or a GGUF file",
                json.name(), printable(quantization->find_string("quant_method").value_or("an unnamed method")));

  ConfigKeys keys = hf_keys(json.name());
  ModelConfig config;
  config.architecture = "llama";
  config.name = printable(json.find_string("_name_or_path").value_or(""));
  config.hidden = json.need_int("hidden_size");
  config.layers = json.need_int("num_hidden_layers");
  config.heads = json.need_int("num_attention_heads");
  config.kv_heads = json.find_int("num_key_value_heads").value_or(family == Family::mistral ? 8 : config.heads);
  config.ffn = json.need_int("intermediate_size");
  config.vocab = json.need_int("vocab_size");
  config.max_position = json.find_int("max_position_embeddings").value_or(family == Family::mistral ? 131072 : 2048);
  config.norm_eps = static_cast<float>(json.find_double("rms_norm_eps").value_or(1e-6));
  config.activation = read_activation(json);
  config.tied_embeddings = json.find_bool("tie_word_embeddings").value_or(false);
  if (family == Family::llama) {
    config.attention_bias = config.output_bias = json.find_bool("attention_bias").value_or(false);
    config.mlp_bias = json.find_bool("mlp_bias").value_or(false);
  } else if (!json.value().contains("sliding_window")) {
    config.sliding_window = 4096;  // Mistral's default; null turns it off
  } else {
    config.sliding_window = json.find_int("sliding_window").value_or(0);
  }

  if (const auto size = json.find_int("head_dim")) {
    config.head_size = *size;
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0)
      throw_error(ErrorKind::bad_file, "{}: hidden_size = {} is not a multiple of num_attention_heads = {}",
                  json.name(), config.hidden, config.heads);
    config.head_size = config.hidden / config.heads;
  }
  read_rope(json, config, keys);
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
