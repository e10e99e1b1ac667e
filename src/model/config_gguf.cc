#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/printable.h"
#include "formats/block_quant.h"
#include "formats/gguf.h"
#include "model/config_read.h"
#include "model/rope.h"

namespace ingot {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

// Typed access to the keys of one architecture: "embedding_length" is llama.embedding_length.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

  std::optional<int64_t> find_int(std::string_view key) const {
    const std::string name = full(key);
    const GgufValue* value = file_.find_value(name);
    if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value))
      throw_error(ErrorKind::declined, "{}: {} differs from layer to layer, which is not supported", file_.name(),
                  name);
    return file_.get_int(name);
  }
  int64_t need_int(std::string_view key) const {
    const std::optional<int64_t> value = find_int(key);
    if (!value) missing(key);
    return *value;
  }
  std::optional<double> find_double(std::string_view key) const { return file_.get_double(full(key)); }
  double need_double(std::string_view key) const {
    const std::optional<double> value = find_double(key);
    if (!value) missing(key);
    return *value;
  }

 private:
  [[noreturn]] void missing(std::string_view key) const {
    throw_error(ErrorKind::bad_file, "{}: key {} is missing", file_.name(), full(key));
  }
  const GgufFile& file_;
  std::string prefix_;
};

int64_t read_vocab(const GgufFile& file, const Keys& keys) {
  const std::optional<int64_t> stated = keys.find_int("vocab_size");
  if (const TensorView* table = file.find("token_embd.weight")) {
    if (table->shape.size() != 2)
      throw_error(ErrorKind::bad_file, "{}: tensor token_embd.weight must have 2 dimensions, has {}", file.name(),
                  table->shape.size());
    if (stated && *stated != table->shape[0])
      throw_error(ErrorKind::bad_file, "{}: {} is {} but tensor token_embd.weight has {} rows", file.name(),
                  keys.full("vocab_size"), *stated, table->shape[0]);
    return table->shape[0];
  }
  if (stated) return *stated;
  const auto* tokens = file.get_strings(kTokens);
  return tokens == nullptr ? 0 : static_cast<int64_t>(tokens->size());
}

// Llama 3's stretched frequencies arrive as one divisor a rotating pair.
std::vector<float> read_rope_factors(const GgufFile& file) {
  const TensorView* tensor = file.find("rope_freqs.weight");
  if (tensor == nullptr) return {};
  if (tensor->shape.size() != 1 || tensor->dtype != DType::f32)
    throw_error(ErrorKind::bad_file, "{}: tensor rope_freqs.weight must be one-dimensional F32", file.name());
  std::vector<float> factors(static_cast<size_t>(tensor->elements()));
  dequantize(tensor->dtype, tensor->data.data(), factors.size(), factors.data());
  return factors;
}

RopeScaling read_rope_scaling(const GgufFile& file, const Keys& keys, int64_t max_position) {
  RopeScaling scaling;
  scaling.factors = read_rope_factors(file);
  scaling.factor =
      keys.find_double("rope.scaling.factor").value_or(keys.find_double("rope.scale_linear").value_or(1.0));
  if (scaling.factor == 0) scaling.factor = 1.0;  // files say 0 for "none"
  const std::string_view kind = file.get_string(keys.full("rope.scaling.type")).value_or("linear");
  if (kind == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    scaling.original_max_position = keys.find_int("rope.scaling.original_context_length").value_or(max_position);
    scaling.beta_fast = keys.find_double("rope.scaling.yarn_beta_fast").value_or(scaling.beta_fast);
    scaling.beta_slow = keys.find_double("rope.scaling.yarn_beta_slow").value_or(scaling.beta_slow);
  } else if (kind == "linear") {
    scaling.kind = scaling.factor == 1.0 ? RopeScaling::Kind::none : RopeScaling::Kind::linear;
  } else if (kind == "none") {
    scaling.factor = 1.0;
  } else {
    throw_error(ErrorKind::declined, "{}: {} is {}; supported are none, linear and yarn", file.name(),
                keys.full("rope.scaling.type"), printable(kind));
  }
  return scaling;
}

int32_t token_id(const GgufFile& file, std::string_view key) {
  const std::optional<int64_t> id = file.get_int(key);
  if (!id || *id == std::numeric_limits<uint32_t>::max()) return -1;  // some writers say "none" this way
  if (*id < 0 || *id > std::numeric_limits<int32_t>::max())
    throw_error(ErrorKind::bad_file, "{}: {} = {} is not a token id", file.name(), key, *id);
  return static_cast<int32_t>(*id);
}

// The ids that end a text: those the file names, then control tokens that end a turn in every known template. Files
// often name only one of the two that a model uses.
std::vector<int32_t> read_eos_ids(const GgufFile& file) {
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    add(token_id(file, key));

  constexpr int64_t kControl = 3;
  constexpr std::array<std::string_view, 7> kEndings = {
      "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>"};
  const auto* tokens = file.get_strings(kTokens);
  const auto* types = file.get_ints("tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr || tokens->size() != types->size()) return ids;
  for (size_t i = 0; i < tokens->size(); ++i)
    if ((*types)[i] == kControl && std::find(kEndings.begin(), kEndings.end(), (*tokens)[i]) != kEndings.end())
      add(static_cast<int32_t>(i));
  return ids;
}

ConfigKeys names_of(const GgufFile& file, const Keys& keys) {
  return {.where = file.name(),
          .hidden = keys.full("embedding_length"),
          .layers = keys.full("block_count"),
          .heads = keys.full("attention.head_count"),
          .kv_heads = keys.full("attention.head_count_kv"),
          .head_size = keys.full("attention.key_length"),
          .ffn = keys.full("feed_forward_length"),
          .vocab = keys.full("vocab_size"),
          .max_position = keys.full("context_length"),
          .norm_eps = keys.full("attention.layer_norm_rms_epsilon"),
          .sliding_window = keys.full("attention.sliding_window"),
          .rope_theta = keys.full("rope.freq_base"),
          .rope_dims = keys.full("rope.dimension_count"),
          .rope_factor = keys.full("rope.scaling.factor"),
          .rope_original = keys.full("rope.scaling.original_context_length"),
          .bos = "tokenizer.ggml.bos_token_id",
          .eos = "tokenizer.ggml.eos_token_id",
          .experts = keys.full("expert_count"),
          .experts_per_token = keys.full("expert_used_count"),
          .expert_ffn = keys.full("expert_feed_forward_length")};
}

constexpr std::array<std::string_view, 7> kArchitectures = {"llama",   "qwen2",  "qwen3", "qwen3moe",
                                                            "smollm3", "gemma3", "gpt2"};

// Whether each layer of a model with local and global layers is local: a pattern of the file, else five of six.
std::vector<bool> read_local_layers(const GgufFile& file, const Keys& keys, int64_t layers) {
  std::vector<bool> local(static_cast<size_t>(layers));
  int64_t period = 6;
  const std::string name = keys.full("attention.sliding_window_pattern");
  if (const GgufValue* value = file.find_value(name)) {
    if (const std::vector<int64_t>* flags = std::get_if<std::vector<int64_t>>(value)) {
      if (static_cast<int64_t>(flags->size()) != layers)
        throw_error(ErrorKind::bad_file, "{}: {} has {} entries for {} layers", file.name(), name, flags->size(),
                    layers);
      for (size_t i = 0; i < local.size(); ++i) local[i] = (*flags)[i] != 0;
      return local;
    }
    period = std::max<int64_t>(1, file.get_int(name).value_or(period));
  }
  for (int64_t i = 0; i < layers; ++i) local[static_cast<size_t>(i)] = (i + 1) % period != 0;
  return local;
}

// All that is particular to an architecture, and not in the file.
void apply_architecture(const GgufFile& file, const Keys& keys, ModelConfig& c) {
  const std::string& name = c.architecture;
  c.per_layer.assign(static_cast<size_t>(c.layers), {.window = name == "llama" ? c.sliding_window : 0});
  c.qk_norm = name == "qwen3" || name == "qwen3moe" || name == "gemma3";
  if (name == "qwen3moe") {
    c.experts = keys.need_int("expert_count");
    c.experts_per_token = keys.need_int("expert_used_count");
    c.expert_ffn = keys.need_int("expert_feed_forward_length");
    c.norm_expert_weights = true;
    for (int64_t i = 0; i < c.layers; ++i)
      c.per_layer[static_cast<size_t>(i)].experts = file.find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
  } else if (name == "smollm3") {
    for (int64_t i = 3; i < c.layers; i += 4) c.per_layer[static_cast<size_t>(i)].rope = LayerConfig::Rope::none;
  } else if (name == "gpt2") {
    c.norm = NormKind::layer;
    c.activation = ActivationKind::gelu_tanh;
    c.learned_positions = true;
    c.gated_mlp = false;
    for (LayerConfig& layer : c.per_layer) layer.rope = LayerConfig::Rope::none;
  } else if (name == "gemma3") {
    c.activation = ActivationKind::gelu_tanh;
    c.sandwich_norms = true;
    c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
    if (c.layers == 62 && c.heads > 0)  // Gemma 3 27B scales by another size than its head's
      c.attention_scale = 1 / std::sqrt(static_cast<float>(c.hidden / c.heads));
    if (keys.find_double("final_logit_softcapping").value_or(0) != 0)
      throw_error(ErrorKind::declined, "{}: {} is not supported", file.name(), keys.full("final_logit_softcapping"));
    if (c.sliding_window == 0) return;
    c.local_rope_theta = keys.find_double("rope.freq_base_swa").value_or(10000.0);
    const std::vector<bool> local = read_local_layers(file, keys, c.layers);
    for (size_t i = 0; i < local.size(); ++i)
      if (local[i]) c.per_layer[i] = {.rope = LayerConfig::Rope::local, .window = c.sliding_window};
  }
}

}  // namespace

std::string dominant_format(const Checkpoint& checkpoint) {
  std::array<int64_t, kNumDTypes> elements{};
  for (const TensorView& tensor : checkpoint.tensors())
    if (tensor.shape.size() >= 2) elements[static_cast<size_t>(tensor.dtype)] += tensor.elements();
  const auto most = std::max_element(elements.begin(), elements.end());
  if (*most == 0) return "";
  return std::string(dtype_name(static_cast<DType>(most - elements.begin())));
}

ModelConfig read_config(const GgufFile& file) {
  const std::optional<std::string_view> architecture = file.get_string("general.architecture");
  if (!architecture) throw_error(ErrorKind::bad_file, "{}: key general.architecture is missing", file.name());
  if (std::find(kArchitectures.begin(), kArchitectures.end(), *architecture) == kArchitectures.end())
    throw_error(ErrorKind::declined, "{}: architecture {} is not supported; supported are {}", file.name(),
                printable(*architecture), fmt::join(kArchitectures, ", "));
  const Keys keys(file, std::string(*architecture));
  const bool moe = *architecture == "qwen3moe";
  if (const int64_t experts = keys.find_int("expert_count").value_or(0); experts != 0 && !moe)
    throw_error(ErrorKind::declined, "{}: is a mixture of {} experts; of {} models only dense ones are supported",
                file.name(), experts, *architecture);

  ModelConfig config;
  config.architecture = *architecture;
  config.name = printable(file.get_string("general.name").value_or(""));
  config.hidden = keys.need_int("embedding_length");
  config.layers = keys.need_int("block_count");
  config.heads = keys.need_int("attention.head_count");
  config.kv_heads = keys.find_int("attention.head_count_kv").value_or(config.heads);
  config.ffn = keys.need_int("feed_forward_length");
  config.vocab = read_vocab(file, keys);
  config.max_position = keys.need_int("context_length");
  const bool gpt2 = config.architecture == "gpt2";
  config.norm_eps =
      static_cast<float>(keys.need_double(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"));
  config.rope_theta = keys.find_double("rope.freq_base").value_or(10000.0);
  config.rope_scaling = read_rope_scaling(file, keys, config.max_position);
  config.sliding_window = keys.find_int("attention.sliding_window").value_or(0);
  config.tied_embeddings = file.find("output.weight") == nullptr;
  config.attention_bias = file.find(gpt2 ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find(gpt2 ? "blk.0.ffn_up.bias" : "blk.0.ffn_gate.bias") != nullptr;
  config.bos_id = token_id(file, "tokenizer.ggml.bos_token_id");
  config.eos_ids = read_eos_ids(file);
  config.weight_format = dominant_format(file);

  const ConfigKeys names = names_of(file, keys);
  check_layers(config, names);
  if (const std::optional<int64_t> size = keys.find_int("attention.key_length")) {
    config.head_size = *size;
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0)
      throw_error(ErrorKind::bad_file, "{}: {} = {} is not a multiple of {} = {}", file.name(), names.hidden,
                  config.hidden, names.heads, config.heads);
    config.head_size = config.hidden / config.heads;
  }
  const int64_t value_size = keys.find_int("attention.value_length").value_or(config.head_size);
  if (value_size != config.head_size)
    throw_error(ErrorKind::declined, "{}: key heads of {} and value heads of {} differ, which is not supported",
                file.name(), config.head_size, value_size);
  apply_architecture(file, keys, config);
  if (!config.learned_positions) config.rope_dims = keys.find_int("rope.dimension_count").value_or(config.head_size);
  if (const auto multiplier = keys.find_double("rope.scaling.attn_factor"))  // on top of what the kind implies
    config.rope_scaling.attention_factor = *multiplier * static_cast<double>(rope_attention_factor(config));
  check_config(config, names);
  return config;
}

}  // namespace ingot
