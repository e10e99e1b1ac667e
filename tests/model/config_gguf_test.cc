#include <gtest/gtest.h>

#include <limits>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/test_files.h"
#include "model/config_read.h"
#include "model/rope.h"

namespace ingot {
namespace {

using W = GgufWriter;

// A llama file with the given keys left out, so that a test can put its own in.
W llama(const std::vector<std::string>& without = {}) {
  W w;
  const auto keep = [&](const std::string& key) {
    return std::find(without.begin(), without.end(), key) == without.end();
  };
  if (keep("general.architecture")) w.value_string("general.architecture", "llama");
  w.value_string("general.name", "Tiny");
  const std::vector<std::pair<std::string, uint32_t>> integers = {{"block_count", 2},
                                                                  {"context_length", 512},
                                                                  {"embedding_length", 64},
                                                                  {"feed_forward_length", 96},
                                                                  {"attention.head_count", 4},
                                                                  {"attention.head_count_kv", 2},
                                                                  {"vocab_size", 3}};
  for (const auto& [key, value] : integers)
    if (keep(key)) w.value_u32("llama." + key, value);
  if (keep("eps")) w.value_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return w;
}

ModelConfig read(const W& w) { return read_config(*GgufFile::open_bytes(as_bytes(w.build()))); }

TEST(GgufConfig, ReadsLlama) {
  W w = llama();
  w.value_f32("llama.rope.freq_base", 100000.0f).value_u32("tokenizer.ggml.bos_token_id", 1);
  w.value_u32("tokenizer.ggml.eos_token_id", 2).tensor_f32("token_embd.weight", {1, 3}, {1, 2, 3});
  const ModelConfig config = read(w);
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "Tiny");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_size, 16);
  EXPECT_EQ(config.rope_dims, 16);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.vocab, 3);
  EXPECT_EQ(config.max_position, 512);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 100000.0);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(config.weight_format, "f32");
}

TEST(GgufConfig, HeadSizesBiasesAndHeads) {
  EXPECT_EQ(read(llama().value_u32("llama.attention.key_length", 32)).head_size, 32);
  EXPECT_EQ(read(llama().value_u32("llama.rope.dimension_count", 8)).rope_dims, 8);
  EXPECT_EQ(read(llama({"attention.head_count_kv"})).kv_heads, 4);
  EXPECT_EQ(read(llama().value_u32("llama.attention.sliding_window", 128)).sliding_window, 128);
  const ModelConfig config = read(llama()
                                      .tensor_f32("output.weight", {1, 3}, {1, 2, 3})
                                      .tensor_f32("blk.0.attn_q.bias", {1}, {1})
                                      .tensor_f32("blk.0.ffn_gate.bias", {1}, {1}));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
}

TEST(GgufConfig, RopeScaling) {
  const ModelConfig none = read(llama().value_string("llama.rope.scaling.type", "none"));
  EXPECT_EQ(none.rope_scaling.kind, RopeScaling::Kind::none);
  const ModelConfig linear = read(llama().value_f32("llama.rope.scaling.factor", 4.0f));
  EXPECT_EQ(linear.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(linear.rope_scaling.factor, 4.0);
  W w = llama().value_string("llama.rope.scaling.type", "yarn").value_f32("llama.rope.scaling.factor", 8.0f);
  w.value_u32("llama.rope.scaling.original_context_length", 64);
  const ModelConfig yarn = read(w);
  EXPECT_EQ(yarn.rope_scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(yarn.rope_scaling.original_max_position, 64);
  const float implied = rope_attention_factor(yarn);
  EXPECT_NEAR(implied, 1.2079, 1e-4);
  EXPECT_FLOAT_EQ(rope_attention_factor(read(w.value_f32("llama.rope.scaling.attn_factor", 0.5f))), 0.5f * implied);
  const ModelConfig factors = read(llama().tensor_f32("rope_freqs.weight", {8}, {1, 1, 1, 2, 4, 8, 8, 8}));
  EXPECT_EQ(factors.rope_scaling.factors, (std::vector<float>{1, 1, 1, 2, 4, 8, 8, 8}));
}

TEST(GgufConfig, EndOfTurnTokensEndAText) {
  W w = llama({"vocab_size"});
  w.value_strings("tokenizer.ggml.tokens", {"<|end_of_text|>", "<|im_end|>", "<|im_end|>", "x", "<|eot_id|>"});
  w.value_array<int32_t>("tokenizer.ggml.token_type", W::kI32, {3, 1, 3, 3, 3});
  w.value_u32("tokenizer.ggml.eos_token_id", 2);
  const ModelConfig config = read(w);
  EXPECT_EQ(config.vocab, 5);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{2, 0, 4}));  // token 1 only looks like a control token
}

struct BadFile {
  W file;
  std::string error;
  ErrorKind kind = ErrorKind::bad_file;
};

TEST(GgufConfig, TakesTheMakersAdviceOnSampling) {
  W file = llama();
  EXPECT_EQ(read(file).sampling, SamplingAdvice{});
  file.value_f32("general.sampling.temp", 0.6f).value_f32("general.sampling.penalty_repeat", 1.1f);
  file.value_u32("general.sampling.top_k", 20);
  EXPECT_EQ(read(file).sampling, (SamplingAdvice{.temperature = 0.6f, .repetition_penalty = 1.1f, .top_k = 20}));
  W known = llama();
  known.value_string("general.basename", "smollm2").value_string("general.size_label", "135M");
  known.value_string("general.organization", "HuggingFaceTB");
  EXPECT_EQ(read(known).sampling, (SamplingAdvice{.temperature = 0.2f, .top_p = 0.9f}));
}

TEST(GgufConfig, WrongValuesNameTheKey) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<BadFile> cases = {
      {llama({"general.architecture"}), "key general.architecture is missing"},
      {llama({"block_count"}), "key llama.block_count is missing"},
      {llama({"context_length"}), "key llama.context_length is missing"},
      {llama({"eps"}), "key llama.attention.layer_norm_rms_epsilon is missing"},
      {llama({"block_count"}).value_u32("llama.block_count", 0), "llama.block_count must be from 1 to"},
      {llama({"block_count"}).value_string("llama.block_count", "2"), "key llama.block_count must be an integer"},
      {llama({"attention.head_count"}).value_u32("llama.attention.head_count", 0), "llama.attention.head_count = 0"},
      {llama({"attention.head_count"}).value_u32("llama.attention.head_count", 7), "llama.attention.head_count = 7"},
      {llama({"attention.head_count_kv"}).value_u32("llama.attention.head_count_kv", 3),
       "llama.attention.head_count = 4 is not a multiple of llama.attention.head_count_kv = 3"},
      {llama({"embedding_length"}).value_u32("llama.embedding_length", 4000000000u), "llama.embedding_length must be"},
      {llama().value_u32("llama.rope.dimension_count", 7), "llama.rope.dimension_count must be even, got 7"},
      {llama().value_u32("llama.rope.dimension_count", 32), "llama.rope.dimension_count must be from 2 to 16, got 32"},
      {llama({"eps"}).value_f32("llama.attention.layer_norm_rms_epsilon", nan), "rms_epsilon must be above 0"},
      {llama({"eps"}).value_f32("llama.attention.layer_norm_rms_epsilon", 0), "rms_epsilon must be above 0"},
      {llama().value_f32("llama.rope.freq_base", -1), "llama.rope.freq_base must be above 0"},
      {llama().value_f32("llama.rope.freq_base", std::numeric_limits<float>::infinity()), "llama.rope.freq_base must"},
      {llama({"vocab_size"}), "llama.vocab_size must be from 1 to"},
      {llama().tensor_f32("token_embd.weight", {1, 4}, {1, 2, 3, 4}),
       "llama.vocab_size is 3 but tensor token_embd.weight has 4 rows"},
      {llama().tensor_f32("token_embd.weight", {3}, {1, 2, 3}), "token_embd.weight must have 2 dimensions"},
      {llama().tensor_f32("rope_freqs.weight", {4}, {1, 1, 1, 1}), "has 4 rotary factors"},
      {llama().tensor_f32("rope_freqs.weight", {8}, {1, 1, 0, 1, 1, 1, 1, 1}), "a rotary factor must be above 0"},
      {llama().value_u32("tokenizer.ggml.eos_token_id", 3), "eos_token_id must be from 0 to 2, got 3"},
      {llama().value("tokenizer.ggml.eos_token_id", W::kI32, W::raw<int32_t>(-1)), "is not a token id"},
      {W().value_string("general.architecture", "phi3"),
       "architecture phi3 is not supported; supported are gemma3, gpt2, ", ErrorKind::declined},
      {llama().value_u32("llama.expert_count", 8), "mixture of 8 experts", ErrorKind::declined},
      {llama({"feed_forward_length"}).value_array<int32_t>("llama.feed_forward_length", W::kI32, {96, 80}),
       "llama.feed_forward_length differs from layer to layer", ErrorKind::declined},
      {llama().value_u32("llama.attention.value_length", 8), "value heads of 8 differ", ErrorKind::declined},
      {llama().value_string("llama.rope.scaling.type", "longrope"), "supported are none, linear and yarn",
       ErrorKind::declined},
  };
  for (const BadFile& bad : cases) expect_error(bad.kind, bad.error, [&] { read(bad.file); });
}

TEST(GgufConfig, Pooling) {
  using Kind = Pooling::Kind;
  EXPECT_FALSE(read(llama()).pooling);
  const std::pair<uint32_t, Kind> types[] = {
      {0, Kind::none}, {1, Kind::mean}, {2, Kind::first}, {3, Kind::last}, {4, Kind::none}};
  for (const auto& [type, kind] : types) {
    const ModelConfig config = read(llama().value_u32("llama.pooling_type", type));
    EXPECT_EQ(config.pooling.kind, kind) << type;
    EXPECT_TRUE(config.pooling.normalize);
    EXPECT_FALSE(config.reranks);
  }
}

}  // namespace
}  // namespace ingot
