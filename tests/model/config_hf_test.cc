#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "formats/test_files.h"
#include "model/config_read.h"

namespace ingot {
namespace {

using nlohmann::json;

json base() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2})");
}

ModelConfig read(const json& config, const std::string& generation = "") {
  return read_hf_config_text(config.dump(), generation);
}
ModelConfig read_with(const std::string& patch, const std::string& generation = "") {
  json config = base();
  config.update(json::parse(patch));
  return read(config, generation);
}
ModelConfig read_without(const std::string& key) {
  json config = base();
  config.erase(key);
  return read(config);
}

TEST(HfConfig, ReadsTheLlamaFamily) {
  const ModelConfig config = read(base());
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_size, 16);
  EXPECT_EQ(config.rope_dims, 16);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.vocab, 100);
  EXPECT_EQ(config.max_position, 512);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.activation, ActivationKind::silu);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::none);
  EXPECT_FALSE(config.tied_embeddings || config.attention_bias || config.mlp_bias);
  EXPECT_EQ(config.sliding_window, 0);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{2});
}

TEST(HfConfig, OptionalValues) {
  EXPECT_EQ(read_with(R"({"head_dim": 32})").head_size, 32);
  EXPECT_EQ(read_with(R"({"head_dim": null})").head_size, 16);
  EXPECT_EQ(read_without("num_key_value_heads").kv_heads, 4);
  EXPECT_TRUE(read_with(R"({"tie_word_embeddings": true})").tied_embeddings);
  EXPECT_TRUE(read_with(R"({"attention_bias": true})").attention_bias);
  EXPECT_TRUE(read_with(R"({"mlp_bias": true})").mlp_bias);
  EXPECT_EQ(read_with(R"({"hidden_act": "gelu_pytorch_tanh"})").activation, ActivationKind::gelu_tanh);
  EXPECT_EQ(read_with(R"({"eos_token_id": [2, 5]})").eos_ids, (std::vector<int32_t>{2, 5}));
  EXPECT_TRUE(read_with(R"({"eos_token_id": null})").eos_ids.empty());
  EXPECT_EQ(read_with("{}", R"({"eos_token_id": [7, 8]})").eos_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(read_with("{}", R"({"temperature": 0.6})").eos_ids, std::vector<int32_t>{2});
}

TEST(HfConfig, TakesTheMakersAdviceOnSampling) {
  const auto advice = [](const char* generation) { return read_with("{}", generation).sampling; };
  EXPECT_EQ(
      advice(R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.05})"),
      (SamplingAdvice{.temperature = 0.6f, .top_p = 0.95f, .min_p = 0.1f, .repetition_penalty = 1.05f, .top_k = 20}));
  EXPECT_EQ(advice("{}"), SamplingAdvice{});
  EXPECT_EQ(advice(R"({"do_sample": false, "temperature": 0.6})"), SamplingAdvice{});
  // What makes no sense is no advice, and no reason to refuse the model.
  EXPECT_EQ(advice(R"({"temperature": -1, "top_p": 7, "top_k": "many", "min_p": null})"), SamplingAdvice{});
  const SamplingParams params = advice(R"({"top_k": 20})").over({.temperature = 0.5f, .top_k = 3});
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 20);
}

TEST(HfConfig, MistralHasItsOwnDefaults) {
  const std::string mistral = R"({"architectures": ["MistralForCausalLM"], "num_attention_heads": 16)";
  EXPECT_EQ(read_with(mistral + "}").sliding_window, 4096);
  EXPECT_EQ(read_with(mistral + R"(, "sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(read_with(mistral + R"(, "sliding_window": 16})").sliding_window, 16);
  EXPECT_EQ(read_with(mistral + R"(, "num_key_value_heads": null})").kv_heads, 8);
  EXPECT_EQ(read_with(R"({"sliding_window": 16})").sliding_window, 0);  // Llama ignores it, as transformers does
}

TEST(HfConfig, ModelTypeStandsInForArchitectures) {
  EXPECT_EQ(read_with(R"({"architectures": null, "model_type": "mistral"})").sliding_window, 4096);
}

TEST(HfConfig, RopeInItsThreeSpellings) {
  json llama3 = json::parse(R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 64})");
  for (const char* spelling : {"type", "rope_type"}) {
    json scaling = llama3;
    scaling[spelling] = "llama3";
    json patched = base();
    patched["rope_scaling"] = scaling;
    const ModelConfig config = read(patched);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::llama3);
    EXPECT_EQ(config.rope_scaling.factor, 8.0);
    EXPECT_EQ(config.rope_scaling.original_max_position, 64);
    EXPECT_EQ(config.rope_theta, 10000.0);
  }
  json patched = base();
  llama3["rope_type"] = "llama3";
  llama3["rope_theta"] = 77.0;
  patched["rope_parameters"] = llama3;
  const ModelConfig newer = read(patched);
  EXPECT_EQ(newer.rope_scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(newer.rope_theta, 77.0);
  EXPECT_EQ(read_with(R"({"rope_scaling": {"type": "linear", "factor": 2}})").rope_scaling.factor, 2.0);
  const RopeScaling yarn = read_with(R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 64,
                                         "beta_slow": 0, "truncate": false}})")
                               .rope_scaling;
  EXPECT_EQ(yarn.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(yarn.factor, 8.0);  // 512 / 64
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_FALSE(yarn.truncate);
}

// A layer that slides needs to know how far.
TEST(HfConfig, SlidingLayersNeedAWindow) {
  const std::string qwen2 = R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
                               "layer_types": ["full_attention", "sliding_attention"])";
  EXPECT_EQ(read_with(qwen2 + R"(, "sliding_window": 8})").layer(1).window, 8);
  for (const char* window : {"null", "0"})
    EXPECT_THROW(read_with(qwen2 + R"(, "sliding_window": )" + window + "}"), Error);
}

// What only some families have, from the keys that only they have.
TEST(HfConfig, FamiliesDiffer) {
  const ModelConfig qwen2 = read_with(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
                                          "sliding_window": 32, "max_window_layers": 1, "num_hidden_layers": 3})");
  EXPECT_EQ(qwen2.architecture, "qwen2");
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.layer(0).window, 0);
  EXPECT_EQ(qwen2.layer(2).window, 32);

  const ModelConfig moe =
      read_with(R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 4, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 2, "mlp_only_layers": [3]})");
  EXPECT_TRUE(moe.qk_norm);
  EXPECT_FALSE(moe.norm_expert_weights);
  EXPECT_EQ(moe.head_size, 128);
  EXPECT_FALSE(moe.layer(0).experts);
  EXPECT_TRUE(moe.layer(1).experts);
  EXPECT_FALSE(moe.layer(3).experts);

  const ModelConfig smollm3 = read_with(R"({"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 5})");
  EXPECT_EQ(smollm3.layer(3).rope, LayerConfig::Rope::none);
  EXPECT_EQ(smollm3.layer(4).rope, LayerConfig::Rope::main);

  const ModelConfig granite = read_with(R"({"architectures": ["GraniteForCausalLM"], "embedding_multiplier": 12,
      "residual_multiplier": 0.22, "logits_scaling": 8})");
  EXPECT_EQ(granite.embedding_scale, 12.0f);
  EXPECT_EQ(granite.attention_scale, 1.0f);  // left out
  EXPECT_EQ(granite.residual_scale, 0.22f);
  EXPECT_EQ(granite.logit_divisor, 8.0f);

  const ModelConfig gemma = read_with(R"({"architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 7,
      "sliding_window": 16, "query_pre_attn_scalar": 100, "rope_theta": null, "rope_parameters": {"full_attention":
      {"rope_type": "linear", "factor": 8, "rope_theta": 5000}, "sliding_attention": {"rope_type": "default",
      "rope_theta": 70}}})");
  EXPECT_EQ(gemma.attention_scale, 0.1f);
  EXPECT_EQ(gemma.embedding_scale, 8.0f);
  EXPECT_EQ(gemma.rope_theta, 5000.0);
  EXPECT_EQ(gemma.local_rope_theta, 70.0);
  EXPECT_EQ(gemma.rope_scaling.factor, 8.0);
  EXPECT_EQ(gemma.layer(4).window, 16);
  EXPECT_EQ(gemma.layer(4).rope, LayerConfig::Rope::local);
  EXPECT_EQ(gemma.layer(5).window, 0);
  EXPECT_EQ(gemma.layer(5).rope, LayerConfig::Rope::main);
}

struct BadConfig {
  std::string patch;
  std::string error;
  ErrorKind kind = ErrorKind::bad_file;
};

TEST(HfConfig, ImpossibleValuesNameTheKey) {
  const std::vector<BadConfig> cases = {
      {R"({"hidden_size": "64"})", "config.json: hidden_size must be an integer, got string"},
      {R"({"hidden_size": null})", "hidden_size is missing"},
      {R"({"hidden_size": 0})", "hidden_size must be from 1 to"},
      {R"({"hidden_size": -64})", "hidden_size must be from 1 to"},
      {R"({"hidden_size": 4611686018427387904})", "hidden_size must be from 1 to"},
      {R"({"num_hidden_layers": 0})", "num_hidden_layers must be from 1"},
      {R"({"num_hidden_layers": 1000000})", "num_hidden_layers must be from 1"},
      {R"({"num_attention_heads": 0})", "not a multiple of num_attention_heads = 0"},
      {R"({"num_attention_heads": 0, "head_dim": 16})", "num_attention_heads must be from 1"},
      {R"({"num_attention_heads": 5})", "hidden_size = 64 is not a multiple of num_attention_heads = 5"},
      {R"({"num_key_value_heads": 3})", "num_attention_heads = 4 is not a multiple of num_key_value_heads = 3"},
      {R"({"num_key_value_heads": 0})", "num_key_value_heads must be from 1"},
      {R"({"head_dim": 15})", "head_dim must be even, got 15"},
      {R"({"head_dim": 1})", "head_dim must be from 2 to 1"},
      {R"({"head_dim": 100000})", "head_dim must be from 1 to"},
      {R"({"intermediate_size": 0})", "intermediate_size must be from 1"},
      {R"({"vocab_size": 0})", "vocab_size must be from 1"},
      {R"({"vocab_size": 1e12})", "vocab_size must be from 1"},
      {R"({"max_position_embeddings": 0})", "max_position_embeddings must be from 1"},
      {R"({"rms_norm_eps": 0})", "rms_norm_eps must be above 0"},
      {R"({"rms_norm_eps": -1e-5})", "rms_norm_eps must be above 0"},
      {R"({"rms_norm_eps": 1e300})", "rms_norm_eps must be above 0"},
      {R"({"rope_theta": 0})", "rope_theta must be above 0"},
      {R"({"eos_token_id": 100})", "eos_token_id must be from 0 to 99, got 100"},
      {R"({"eos_token_id": -1})", "eos_token_id = -1 is not a token id"},
      {R"({"eos_token_id": 99999999999})", "eos_token_id = 99999999999 is not a token id"},
      {R"({"eos_token_id": "</s>"})", "eos_token_id must be an integer or a list"},
      {R"({"bos_token_id": 1000})", "bos_token_id must be from 0 to 99"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings must be true or false"},
      {R"({"architectures": "LlamaForCausalLM"})", "architectures must be a list of strings, got string"},
      {R"({"architectures": null})", "architectures is missing"},
      {R"({"architectures": ["GraniteForCausalLM"], "logits_scaling": 0})", "logits_scaling must be above 0"},
      {R"({"rope_scaling": "linear"})", "rope_scaling must be an object, got string"},
      {R"({"rope_scaling": {"type": "linear"}})", "rope_scaling.factor is missing"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0}})", "rope_scaling.factor must be above 0"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8}})", "rope_scaling.low_freq_factor is missing"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}})",
       "high_freq_factor 4 must be above low_freq_factor 4"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 0}})",
       "rope_scaling.original_max_position_embeddings must be from 1"},
      {R"({"rope_scaling": {"type": "yarn", "factor": -8}})", "rope_scaling.factor must be above 0"},
  };
  for (const BadConfig& bad : cases) expect_error(bad.kind, bad.error, [&] { read_with(bad.patch); });
  expect_error(ErrorKind::bad_file, "hidden_size is missing", [] { read_without("hidden_size"); });
  expect_error(ErrorKind::bad_file, "generation_config.json: is not valid JSON", [] { read_with("{}", "{"); });
  expect_error(ErrorKind::bad_file, "generation_config.json: eos_token_id must be",
               [] { read_with("{}", R"({"eos_token_id": {}})"); });
  expect_error(ErrorKind::bad_file, "config.json: must be a JSON object", [] { read_hf_config_text("[1]", ""); });
}

TEST(HfConfig, PackedWeights) {
  using Method = PackedFormat::Method;
  EXPECT_EQ(read_with("{}").packed.method, Method::none);
  PackedFormat f = read_with(R"({"quantization_config": {"quant_method": "awq", "version": "GEMM"}})").packed;
  EXPECT_EQ(f.method, Method::awq);
  EXPECT_EQ(f.width.group_size, 128);
  f = read_with(R"({"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": false}})")
          .packed;
  EXPECT_EQ(f.method, Method::gptq);
  EXPECT_EQ(f.width.bits, 8);
  EXPECT_EQ(f.width.group_size, -1);
  EXPECT_FALSE(f.symmetric);
  EXPECT_TRUE(f.zero_minus_one);
  f = read_with(R"({"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}})").packed;
  EXPECT_FALSE(f.zero_minus_one);
  EXPECT_TRUE(f.symmetric);
  f = read_with(R"({"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 8}, "model.norm": false}})")
          .packed;
  EXPECT_EQ(f.method, Method::mlx);
  EXPECT_EQ(f.width.bits, 4);
  ASSERT_EQ(f.modules.size(), 1u);
  EXPECT_EQ(f.modules.at("lm_head").bits, 8);
  EXPECT_EQ(f.modules.at("lm_head").group_size, 64);
}

TEST(HfConfig, UnsupportedValuesAreDeclinedWithWhatIsSupported) {
  const std::vector<BadConfig> cases = {
      {R"({"architectures": ["PhiForCausalLM"]})",
       "architecture PhiForCausalLM is not supported; supported are Gemma3ForCausalLM, GPT2LMHeadModel, "},
      {R"({"architectures": null, "model_type": "gemma9"})", "architecture gemma9 is not supported"},
      {R"({"hidden_act": "relu"})", "hidden_act relu is not supported; supported are silu"},
      {R"({"rope_scaling": {"rope_type": "longrope"}})", "rope_scaling.rope_type longrope is not supported"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", "dynamic is not supported"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor 0.5 is not supported"},
      {R"({"quantization_config": {"quant_method": "fp8"}})", "weights quantized with fp8 are not supported"},
      {R"({"quantization_config": {}})", "weights quantized with an unnamed method are not supported"},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 8}})", "quantized with AWQ in 8 bits are not"},
      {R"({"quantization_config": {"quant_method": "awq", "version": "GEMV"}})", "AWQ's version gemv are not"},
      {R"({"quantization_config": {"quant_method": "awq", "zero_point": false}})", "AWQ without zero points are not"},
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 3}})", "quantized with GPTQ in 3 bits are not"},
      {R"({"quantization_config": {"quant_method": "gptq", "group_size": 48}})", "GPTQ in groups of 48 are not"},
      {R"({"quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"}})",
       "GPTQ's checkpoint_format marlin are not"},
      {R"({"quantization_config": {"quant_method": "gptq", "dynamic": {"+:.*": {"bits": 8}}}})", "dynamic widths"},
      {R"({"quantization": {"qformat": "fp8"}})", "weights quantized with an unnamed method are not supported"},
      {R"({"quantization": {"bits": 6, "group_size": 64}})", "quantized with MLX in 6 bits are not supported"},
      {R"({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}})", "MLX's mode mxfp4 are not supported"},
      {R"({"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 3}}})", "MLX in 3 bits are not"},
  };
  for (const BadConfig& bad : cases) expect_error(ErrorKind::declined, bad.error, [&] { read_with(bad.patch); });
}

}  // namespace
}  // namespace ingot
