#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/error.h"

namespace ingot {
namespace {

// A checkpoint of zeros, in memory.
class FakeCheckpoint : public Checkpoint {
 public:
  void add(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::f32) {
    TensorView tensor{name, dtype, std::move(shape), {}};
    storage_.emplace_back(dtype_bytes(dtype, static_cast<size_t>(tensor.elements())));
    tensor.data = storage_.back();
    tensors_.push_back(std::move(tensor));
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorView& t) { return t.name == name; });
  }
  TensorView& at(const std::string& name) { return const_cast<TensorView&>(get(name)); }

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override {
    for (const TensorView& t : tensors_)
      if (t.name == name) return &t;
    return nullptr;
  }
  uint64_t file_bytes() const override { return 0; }
  void drop_pages(std::span<const std::byte>) const override {}

 protected:
  std::string describe() const override { return "fake"; }

 private:
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorView> tensors_;
};

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 8;
  config.ffn = 48;
  config.vocab = 64;
  config.max_position = 128;
  config.rope_dims = 8;
  return config;
}

std::unique_ptr<FakeCheckpoint> hf_checkpoint() {
  auto checkpoint = std::make_unique<FakeCheckpoint>();
  checkpoint->add("model.embed_tokens.weight", {64, 32}, DType::bf16);
  checkpoint->add("model.norm.weight", {32});
  checkpoint->add("lm_head.weight", {64, 32});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    checkpoint->add(p + "input_layernorm.weight", {32});
    checkpoint->add(p + "self_attn.q_proj.weight", {32, 32});
    checkpoint->add(p + "self_attn.k_proj.weight", {16, 32});
    checkpoint->add(p + "self_attn.v_proj.weight", {16, 32});
    checkpoint->add(p + "self_attn.o_proj.weight", {32, 32});
    checkpoint->add(p + "post_attention_layernorm.weight", {32});
    checkpoint->add(p + "mlp.gate_proj.weight", {48, 32});
    checkpoint->add(p + "mlp.up_proj.weight", {48, 32});
    checkpoint->add(p + "mlp.down_proj.weight", {32, 48});
  }
  return checkpoint;
}

std::string error_of(const ModelConfig& config, const std::function<void(FakeCheckpoint&)>& change) {
  const auto checkpoint = hf_checkpoint();
  change(*checkpoint);
  try {
    CheckedWeights(*checkpoint, config, NameStyle::hugging_face);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(CheckedWeights, TakesEveryTensor) {
  const auto checkpoint = hf_checkpoint();
  const ModelConfig config = small_config();
  const CheckedWeights plan(*checkpoint, config, NameStyle::hugging_face);
  EXPECT_EQ(plan.tensors(), 2u + 1u + 2 * 7);  // q, k and v are one matrix
}

TEST(CheckedWeights, NamesWhatIsMissingExtraOrMisshapen) {
  using ::testing::HasSubstr;
  const ModelConfig config = small_config();
  EXPECT_THAT(error_of(config, [](auto& c) { c.remove("model.layers.1.mlp.up_proj.weight"); }),
              HasSubstr("model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(error_of(config, [](auto& c) { c.add("model.layers.2.mlp.up_proj.weight", {48, 32}); }),
              HasSubstr("model.layers.2.mlp.up_proj.weight"));
  EXPECT_THAT(error_of(config, [](auto& c) { c.add("model.layers.0.self_attn.q_norm.weight", {8}); }),
              HasSubstr("q_norm"));
  EXPECT_THAT(
      error_of(config, [](auto& c) { c.at("model.layers.0.self_attn.k_proj.weight").shape = {32, 16}; }),
      HasSubstr("model.layers.0.self_attn.k_proj.weight: its shape is [32, 16], the configuration asks for [16, 32]"));
  EXPECT_THAT(error_of(config, [](auto& c) { c.at("model.norm.weight").dtype = DType::q8_0; }),
              HasSubstr("model.norm.weight"));
  EXPECT_EQ(error_of(config, [](auto& c) { c.add("model.layers.0.self_attn.rotary_emb.inv_freq", {4}); }), "");
}

TEST(CheckedWeights, TiedModelsNeedNoHead) {
  ModelConfig config = small_config();
  config.tied_embeddings = true;
  EXPECT_EQ(error_of(config, [](auto& c) { c.remove("lm_head.weight"); }), "");
  EXPECT_EQ(error_of(config, [](auto&) {}), "");  // a stored copy does no harm
}

TEST(CheckedWeights, BiasesFollowTheConfiguration) {
  using ::testing::HasSubstr;
  ModelConfig config = small_config();
  config.attention_bias = true;
  EXPECT_THAT(error_of(config, [](auto&) {}), HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

// llama.cpp stores the two halves of a head's rotation interleaved; taking rows through source_row puts them back.
TEST(MatrixPart, UndoesTheInterleaving) {
  const MatrixPart part{nullptr, 8};
  std::vector<int64_t> rows;
  for (int64_t r = 8; r < 16; ++r) rows.push_back(part.source_row(r));
  EXPECT_EQ(rows, (std::vector<int64_t>{8, 10, 12, 14, 9, 11, 13, 15}));
  EXPECT_EQ((MatrixPart{nullptr, 0}.source_row(5)), 5);
}

}  // namespace
}  // namespace ingot
