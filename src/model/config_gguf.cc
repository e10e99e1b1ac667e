#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "core/printable.h"
#include "formats/block_quant.h"
#include "formats/gguf.h"
#include "model/config_read.h"
#include "model/config_settings.h"
#include "model/export.h"
#include "model/pooling.h"
#include "model/rope.h"
#include "model/sampling_advice.h"

namespace ingot {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

int64_t read_vocab(const GgufFile& file, const GgufKeys& keys) {
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
  return tokens == nullptr ? -1 : static_cast<int64_t>(tokens->size());
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

RopeScaling read_rope_scaling(const GgufFile& file, const GgufKeys& keys, int64_t max_position) {
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

}  // namespace

std::string dominant_format(const Checkpoint& checkpoint) {
  std::array<int64_t, kNumDTypes> elements{};
  for (const TensorView& tensor : checkpoint.tensors())
    if (tensor.shape.size() >= 2) elements[static_cast<size_t>(tensor.dtype)] += tensor.elements();
  const auto most = std::max_element(elements.begin(), elements.end());
  if (*most == 0) return "";
  return std::string(dtype_name(static_cast<DType>(most - elements.begin())));
}

std::optional<bool> GgufKeys::find_bool(std::string_view key) const { return file_.get_bool(full(key)); }
std::optional<double> GgufKeys::find_double(std::string_view key) const { return file_.get_double(full(key)); }
std::optional<int64_t> GgufKeys::find_int(std::string_view key) const {
  const GgufValue* value = file_.find_value(full(key));
  if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value))
    throw_error(ErrorKind::declined, "{}: {} differs from layer to layer, which is not supported", file_.name(),
                full(key));
  return file_.get_int(full(key));
}

std::string_view GgufKeys::needed(std::string_view key) const {
  if (file_.find_value(full(key)) != nullptr) return key;
  throw_error(ErrorKind::bad_file, "{}: key {} is missing", file_.name(), full(key));
}

ModelConfig read_config(const GgufFile& file) {
  const std::optional<std::string_view> architecture = file.get_string("general.architecture");
  if (!architecture) throw_error(ErrorKind::bad_file, "{}: key general.architecture is missing", file.name());
  const Family& family = find_family(&Family::gguf, *architecture, file.name());
  const GgufKeys keys(file, family.gguf);
  const ConfigNames names = {.where = file.name(),
                             .family = family,
                             .kind = &Setting::gguf,
                             .prefix = keys.full(""),
                             .sliding_window = keys.full("attention.sliding_window"),
                             .rope_theta = keys.full("rope.freq_base"),
                             .rope_dims = keys.full("rope.dimension_count"),
                             .rope_factor = keys.full("rope.scaling.factor"),
                             .rope_original = keys.full("rope.scaling.original_context_length"),
                             .bos = "tokenizer.ggml.bos_token_id",
                             .eos = "tokenizer.ggml.eos_token_id"};
  ModelConfig config = family.base;
  // What a config.json may leave out, metadata may not; but for these.
  config.kv_heads = config.head_size = config.ffn = config.max_position = 0;
  config.norm_eps = 0;
  config.rope_theta = keys.find_double("rope.freq_base").value_or(10000.0);
  config.vocab = read_vocab(file, keys);
  config.architecture = family.gguf;
  config.name = printable(file.get_string("general.name").value_or(""));
  read_settings(keys, names, config);
  if (const int64_t experts = keys.find_int("expert_count").value_or(0); experts != config.experts)
    throw_error(ErrorKind::declined, "{}: is a mixture of {} experts; of {} models only dense ones are supported",
                file.name(), experts, family.gguf);
  const int64_t value_size = keys.find_int("attention.value_length").value_or(config.head_size);
  if (value_size != config.head_size)
    throw_error(ErrorKind::declined, "{}: key heads of {} and value heads of {} differ, which is not supported",
                file.name(), config.head_size, value_size);
  const auto has = [&](const char* tensor) { return file.find(tensor) != nullptr; };
  config.tied_embeddings = !has("output.weight");
  config.attention_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has(config.gated_mlp ? "blk.0.ffn_gate.bias" : "blk.0.ffn_up.bias");
  config.sliding_window = keys.find_int("attention.sliding_window").value_or(0);
  config.bos_id = token_id(file, "tokenizer.ggml.bos_token_id");
  config.eos_ids = read_eos_ids(file);
  config.sampling = read_sampling_advice(file);
  config.weight_format = dominant_format(file);
  read_pooling(keys, config);
  if (family.read_gguf != nullptr) family.read_gguf(keys, config);

  config.rope_scaling = read_rope_scaling(file, keys, config.max_position);
  if (!config.learned_positions) config.rope_dims = keys.find_int("rope.dimension_count").value_or(config.head_size);
  if (const auto multiplier = keys.find_double("rope.scaling.attn_factor"))  // on top of what the kind implies
    config.rope_scaling.attention_factor = *multiplier * static_cast<double>(rope_attention_factor(config));
  check_config(config, names);
  return config;
}

GgufValues write_gguf_config(const ModelConfig& c) {
  const Family& family = family_of(c);
  const auto key = [&](const char* name) { return c.architecture + "." + name; };
  GgufValues values;
  values.put_text("general.architecture", c.architecture);
  values.put_text("general.type", "model");
  values.put_text("general.name", c.name);
  for (const Setting& setting : settings_of(family)) {
    if (setting.gguf == nullptr) continue;
    const std::string name = key(own_name(family.keys, setting.gguf));
    if (const auto* size = std::get_if<int64_t ModelConfig::*>(&setting.member)) values.put_u32(name, c.**size);
    if (const auto* number = std::get_if<float ModelConfig::*>(&setting.member)) values.put_f32(name, c.**number);
  }
  if (!c.learned_positions) {
    values.put_u32(key("attention.key_length"), c.head_size);
    values.put_u32(key("attention.value_length"), c.head_size);
    values.put_u32(key("rope.dimension_count"), c.rope_dims);
    values.put_f32(key("rope.freq_base"), c.rope_theta);
    const RopeScaling& scaling = c.rope_scaling;
    const bool yarn = scaling.kind == RopeScaling::Kind::yarn;
    if (yarn || scaling.kind == RopeScaling::Kind::linear) {
      values.put_text(key("rope.scaling.type"), yarn ? "yarn" : "linear");
      values.put_f32(key("rope.scaling.factor"), scaling.factor);
      if (yarn) values.put_u32(key("rope.scaling.original_context_length"), scaling.original_max_position);
    }
  }
  if (c.pooling) values.put_u32(key("pooling_type"), gguf_pooling_type(c.pooling.kind));
  if (family.write_gguf != nullptr) family.write_gguf(c, values);
  return values;
}

}  // namespace ingot
