#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "model/config_read.h"
#include "model/config_settings.h"
#include "model/export.h"
#include "model/pooling.h"
#include "model/sampling_advice.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Parts that guess tokens from a model's hidden state: checkpoints that are nothing else, and layers beside a model's.
void decline_draft_heads(const JsonView& json, const std::vector<std::string>& architectures) {
  for (const std::string& name : architectures)
    for (const char* head : {"Eagle", "Medusa", "MTP", "Speculator"})
      if (name.find(head) != std::string::npos)
        throw_error(ErrorKind::declined,
                    "{}: {} guesses tokens from the hidden state of another model in a way that is not run here; what "
                    "is are LlamaForCausalLMEagle3 and small models with the same vocabulary (--draft-model)",
                    json.name(), printable(name));
  if (std::ranges::find(architectures, families::mimo.hf) != architectures.end()) return;  // its own are run
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"})
    if (const int64_t layers = json.find_int(key).value_or(0); layers > 0)
      throw_error(
          ErrorKind::declined,
          "{}: {} is {}: layers that guess tokens (MTP) are not run here; take a checkpoint without them, and a "
          "small model with the same vocabulary to guess (--draft-model)",
          json.name(), key, layers);
}

const Family& hf_family(const JsonView& json) {
  const std::vector<std::string> names = json.find_strings("architectures");
  if (is_eagle3(json)) return families::eagle3;
  decline_draft_heads(json, names);
  if (!names.empty()) return find_family(&Family::hf, fmt::format("{}", fmt::join(names, ", ")), json.name());
  const std::string type = json.find_string("model_type").value_or("");
  if (type.empty()) throw_error(ErrorKind::bad_file, "{}: architectures is missing", json.name());
  return find_family(&Family::model_type, type, json.name());
}

// Names of activations; of those with several the first is written.
constexpr std::pair<const char*, ActivationKind> kActivations[] = {{"silu", ActivationKind::silu},
                                                                   {"swish", ActivationKind::silu},
                                                                   {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
                                                                   {"gelu_new", ActivationKind::gelu_tanh},
                                                                   {"gelu", ActivationKind::gelu}};

ActivationKind read_activation(const JsonView& json, const char* key, ActivationKind fallback) {
  const std::optional<std::string> stated = json.find_string(key);
  if (!stated) return fallback;
  for (const auto& [name, kind] : kActivations)
    if (*stated == name) return kind;
  throw_error(ErrorKind::declined, "{}: {} {} is not supported; supported are silu, gelu and gelu_pytorch_tanh",
              json.name(), key, printable(*stated));
}

// Rotary settings have lived in three places: rope_theta with rope_scaling {"type": ...}, the same with {"rope_type":
// ...}, and rope_parameters {"rope_type": ..., "rope_theta": ...}, which may be one object for each kind of layer.
void read_rope(const JsonView& json, ModelConfig& config, ConfigNames& names) {
  std::optional<JsonView> rope = json.find_object("rope_parameters");
  if (!rope) rope = json.find_object("rope_scaling");
  if (rope)
    if (std::optional<JsonView> full = rope->find_object("full_attention")) {
      if (const auto local = rope->find_object("sliding_attention"))
        config.local_rope_theta = local->find_double("rope_theta").value_or(config.local_rope_theta);
      rope = full;
    }
  config.rope_theta = json.find_double("rope_theta").value_or(config.rope_theta);
  config.rope_dims = config.head_size;
  double rotated = json.find_double("partial_rotary_factor").value_or(1.0);
  if (rope) {
    if (const auto theta = rope->find_double("rope_theta")) {
      config.rope_theta = *theta;
      names.rope_theta = rope->path_of("rope_theta");
    }
    rotated = rope->find_double("partial_rotary_factor").value_or(rotated);
  }
  if (rotated != 1.0)
    throw_error(ErrorKind::declined, "{}: partial_rotary_factor {:g} is not supported; supported is 1", json.name(),
                rotated);
  if (!rope) return;

  names.rope_factor = rope->path_of("factor");
  names.rope_original = rope->path_of("original_max_position_embeddings");
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

ModelConfig build_config(const JsonView& json, const JsonView& generation) {
  const Family& family = hf_family(json);
  ConfigNames names = {.where = json.name(),
                       .family = family,
                       .kind = &Setting::hf,
                       .sliding_window = "sliding_window",
                       .rope_theta = "rope_theta",
                       .rope_dims = kHeadSize.hf,
                       .rope_factor = "rope_scaling.factor",
                       .rope_original = "rope_scaling.original_max_position_embeddings",
                       .bos = "bos_token_id",
                       .eos = "eos_token_id"};
  ModelConfig config = family.base;
  config.packed = read_packed_format(json);
  config.architecture = family.gguf;
  config.name = printable(json.find_string("_name_or_path").value_or(""));
  read_settings(json, names, config);
  config.activation = read_activation(json, family.activation_key, config.activation);
  config.tied_embeddings = json.find_bool("tie_word_embeddings").value_or(config.tied_embeddings);
  if (family.read_hf != nullptr) family.read_hf(json, config);
  if (!config.learned_positions) read_rope(json, config, names);
  config.weight_format = read_dtype(json);

  if (config.head) {  // it ends no text; tokens of the model may not be its own
    check_config(config, names);
    return config;
  }
  if (const std::vector<int32_t> bos = read_ids(json, "bos_token_id"); !bos.empty()) config.bos_id = bos[0];
  config.eos_ids = read_ids(generation, "eos_token_id");
  if (config.eos_ids.empty()) config.eos_ids = read_ids(json, "eos_token_id");
  config.sampling = read_sampling_advice(generation);
  check_config(config, names);
  return config;
}

// 1e-05 for the float next to it, as people wrote it.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

void read_windows(const JsonView& json, int64_t window, const std::function<bool(int64_t)>& slides,
                  ModelConfig& config) {
  config.sliding_window = window;
  const std::vector<std::string> types = json.find_strings("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != config.layers)
    throw_error(ErrorKind::bad_file, "{}: layer_types has {} entries for {} layers", json.name(), types.size(),
                config.layers);
  for (const std::string& type : types)
    if (type != "full_attention" && type != "sliding_attention")
      throw_error(ErrorKind::declined,
                  "{}: layer_types {} is not supported; supported are full_attention and sliding_attention",
                  json.name(), printable(type));
  for (int64_t i = 0; i < config.layers; ++i) {
    if (types.empty() ? !slides(i) : types[static_cast<size_t>(i)] != "sliding_attention") continue;
    if (window <= 0)
      throw_error(ErrorKind::bad_file, "{}: layer {} slides but sliding_window is missing", json.name(), i);
    config.per_layer[static_cast<size_t>(i)].window = window;
  }
}

int64_t switched_window(const JsonView& json) {
  return json.find_bool("use_sliding_window").value_or(false) ? json.find_int("sliding_window").value_or(0) : 0;
}

void read_late_windows(const JsonView& json, ModelConfig& config) {
  const int64_t window = switched_window(json), first = json.find_int("max_window_layers").value_or(28);
  read_windows(json, window, [=](int64_t layer) { return window > 0 && layer >= first; }, config);
}

ModelConfig read_hf_config(const fs::path& dir) {
  const nlohmann::json json = read_json_file(dir / "config.json");
  const JsonView view(json, (dir / "config.json").string());
  const fs::path path = dir / "generation_config.json";
  nlohmann::json generation = nlohmann::json::object();
  if (fs::exists(path)) generation = read_json_file(path);
  ModelConfig config = build_config(view, JsonView(generation, path.string()));
  read_pooling(dir, view, config);
  if (config.name.empty()) config.name = printable(fs::absolute(dir).lexically_normal().filename().string());
  return config;
}

ModelConfig read_hf_config_text(std::string_view config, std::string_view generation_config) {
  const nlohmann::json json = parse_json(config, "config.json");
  const JsonView view(json, "config.json");
  const nlohmann::json generation =
      parse_json(generation_config.empty() ? "{}" : generation_config, "generation_config.json");
  return build_config(view, JsonView(generation, "generation_config.json"));
}

std::string write_hf_config(const ModelConfig& c) {
  const Family& family = family_of(c);
  nlohmann::ordered_json json = {{"architectures", {family.hf}}, {"model_type", family.model_type}};
  for (const Setting& setting : settings_of(family))
    std::visit(
        [&](auto member) {
          const auto& value = c.*member;
          auto& field = json[own_name(family.keys, setting.hf)];
          if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(value)>>)
            field = shortest(value);
          else
            field = value;
        },
        setting.member);
  for (const auto& [name, kind] : kActivations)
    if (kind == c.activation && !json.contains(family.activation_key)) json[family.activation_key] = name;
  json["tie_word_embeddings"] = c.tied_embeddings;
  json["torch_dtype"] = "float16";
  if (!c.learned_positions) {
    json[kHeadSize.hf] = c.head_size;
    json["rope_theta"] = c.rope_theta;
    const RopeScaling& scaling = c.rope_scaling;
    const bool yarn = scaling.kind == RopeScaling::Kind::yarn;
    if (yarn || scaling.kind == RopeScaling::Kind::linear)
      json["rope_scaling"] = {{"rope_type", yarn ? "yarn" : "linear"}, {"factor", scaling.factor}};
    if (yarn) json["rope_scaling"]["original_max_position_embeddings"] = scaling.original_max_position;
  }
  if (c.bos_id >= 0) json["bos_token_id"] = c.bos_id;
  if (!c.eos_ids.empty()) json["eos_token_id"] = c.eos_ids[0];
  if (family.write_hf != nullptr) family.write_hf(c, json);
  return json.dump(1) + "\n";
}

}  // namespace ingot
