#include "model/open_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/block_quant.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/json.h"
#include "formats/test_files.h"
#include "model/rope.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
const fs::path kModels = fs::path(INGOT_FIXTURES) / "models";

std::string folder(const std::string& name) { return (kModels / name).string(); }

// Values of one tensor as floats.
std::vector<float> values(const ModelFiles& files, const std::string& name) {
  const TensorView& tensor = files.checkpoint->get(name);
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  dequantize(tensor.dtype, tensor.data.data(), out.size(), out.data());
  return out;
}

TEST(OpenModel, EveryFixtureOpensAndSaysWhatItIs) {
  struct Expected {
    const char* name;
    int64_t hidden, heads, kv_heads, head_size, vocab;
    bool tied;
    const char* format;
    RopeScaling::Kind rope;
  };
  using Kind = RopeScaling::Kind;
  const Expected cases[] = {
      {"llama-bf16-tied", 64, 4, 4, 16, 331, true, "bf16", Kind::none},
      {"llama-f16-untied-sharded", 72, 6, 2, 16, 211, false, "f16", Kind::none},
      {"llama-bf16-llama3", 64, 4, 2, 32, 211, true, "bf16", Kind::llama3},
      {"llama-bf16-bias", 48, 3, 1, 16, 211, false, "bf16", Kind::none},
      {"llama-f16-yarn", 64, 4, 1, 16, 211, false, "f16", Kind::yarn},
      {"llama-bf16-linear", 64, 4, 2, 16, 211, false, "bf16", Kind::linear},
      {"mistral-bf16-window", 64, 4, 2, 16, 211, false, "bf16", Kind::none},
      {"gguf-bf16-llama3", 64, 4, 2, 32, 211, true, "bf16", Kind::none},  // the scaling is in rope_freqs.weight
      {"gguf-q8_0-llama3", 64, 4, 2, 32, 211, true, "q8_0", Kind::none},
      {"gguf-q4_0-llama3", 64, 4, 2, 32, 211, true, "q4_0", Kind::none},
      {"gguf-bf16-bias", 48, 3, 1, 16, 211, false, "bf16", Kind::none},
  };
  for (const Expected& e : cases) {
    SCOPED_TRACE(e.name);
    const ModelFiles files = open_model(folder(e.name));
    EXPECT_EQ(files.config.hidden, e.hidden);
    EXPECT_EQ(files.config.heads, e.heads);
    EXPECT_EQ(files.config.kv_heads, e.kv_heads);
    EXPECT_EQ(files.config.head_size, e.head_size);
    EXPECT_EQ(files.config.vocab, e.vocab);
    EXPECT_EQ(files.config.layers, 2);
    EXPECT_EQ(files.config.tied_embeddings, e.tied);
    EXPECT_EQ(files.config.weight_format, e.format);
    EXPECT_EQ(files.config.rope_scaling.kind, e.rope);
    EXPECT_EQ(files.gguf != nullptr, std::string_view(e.name).starts_with("gguf"));
    EXPECT_EQ(fs::path(files.dir), kModels / e.name);
    EXPECT_FALSE(files.config.name.empty());
  }
  EXPECT_EQ(open_model(folder("mistral-bf16-window")).config.sliding_window, 16);
  EXPECT_TRUE(open_model(folder("gguf-bf16-bias")).config.attention_bias);
  EXPECT_TRUE(open_model(folder("gguf-bf16-bias")).config.mlp_bias);
  EXPECT_EQ(open_model(folder("llama-f16-untied-sharded")).config.eos_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(open_model(folder("llama-f16-untied-sharded")).checkpoint->tensors().size(), 21u);
}

// The same model through both formats: equal weights, Q and K in llama.cpp's row order, equal frequencies.
TEST(OpenModel, GgufAndSafetensorsHoldTheSameModel) {
  const ModelFiles hf = open_model(folder("llama-bf16-llama3"));
  const ModelFiles gguf = open_model(folder("gguf-bf16-llama3"));
  EXPECT_EQ(values(hf, "model.embed_tokens.weight"), values(gguf, "token_embd.weight"));
  EXPECT_EQ(values(hf, "model.layers.1.mlp.down_proj.weight"), values(gguf, "blk.1.ffn_down.weight"));
  const std::vector<float> k = values(hf, "model.layers.1.self_attn.k_proj.weight");
  const std::vector<float> permuted = values(gguf, "blk.1.attn_k.weight");
  ASSERT_EQ(k.size(), permuted.size());
  const size_t cols = 64, size = 32, half = size / 2;
  for (size_t row = 0; row < k.size() / cols; ++row) {
    const size_t in_head = row % size;
    const size_t source = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    EXPECT_EQ(std::memcmp(&k[row * cols], &permuted[source * cols], cols * sizeof(float)), 0) << "row " << row;
  }
  const std::vector<float> a = rope_inv_freq(hf.config), b = rope_inv_freq(gguf.config);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], a[i] * 2e-6) << i;
}

// The fixtures must be able to fail: read what the script measured.
TEST(TinyModels, EveryMutationMovesTheLogits) {
  int models = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels)) {
    SCOPED_TRACE(entry.path().string());
    if (!fs::exists(entry.path() / "logits.npy")) continue;  // vectors are its reference
    const nlohmann::json report = read_json_file(entry.path() / "report.json");
    EXPECT_GE(report["logits_std"].get<double>(), 1.0);
    EXPECT_GE(report["mutations"].size(), 1u);
    for (const auto& [mutation, moved] : report["mutations"].items()) EXPECT_GT(moved.get<double>(), 0.5) << mutation;
    ++models;
  }
  EXPECT_GE(models, 67);
}

TEST(OpenModel, SaysWhatItFoundInstead) {
  const TempDir dir;
  const auto opening = [&](const std::string& name = "") {
    return [path = name.empty() ? dir.path().string() : (dir / name).string()] { open_model(path); };
  };
  expect_error(ErrorKind::io, "no such file or folder", opening("nothing"));
  expect_error(ErrorKind::io, "is not a model folder: it has no config.json and no .gguf file", opening());
  write_file(dir / "pytorch_model.bin", "x");
  expect_error(ErrorKind::declined, "only PyTorch pickle weights", opening());
  fs::remove(dir / "pytorch_model.bin");
  write_file(dir / "model.safetensors", "x");
  expect_error(ErrorKind::io, "safetensors weights but no config.json", opening());
  expect_error(ErrorKind::bad_call, "give the model's folder", opening("model.safetensors"));
  fs::remove(dir / "model.safetensors");
  write_file(dir / "config.json", "{}");
  expect_error(ErrorKind::io, "has a config.json but no weights", opening());
  write_file(dir / "a.gguf", "x");
  expect_error(ErrorKind::bad_file, "a.gguf: header", opening());
  write_file(dir / "b.gguf", "x");
  expect_error(ErrorKind::bad_call, "has 2 .gguf models (a.gguf, b.gguf, ...); name one of them", opening());
  expect_error(ErrorKind::bad_file, "b.gguf: header", opening("b.gguf"));
  write_file(dir / "text.txt", "hello world");
  expect_error(ErrorKind::bad_file, "not a GGUF model file", opening("text.txt"));
}

TEST(OpenModel, ASplitSetInAFolderIsOneModel) {
  const TempDir dir;
  const auto part = [](uint16_t number) {
    GgufWriter w;
    w.value("split.no", GgufWriter::kU16, GgufWriter::raw(number));
    w.value("split.count", GgufWriter::kU16, GgufWriter::raw<uint16_t>(2)).value_u32("split.tensors.count", 0);
    return w;
  };
  write_file(dir / "m-00001-of-00002.gguf", part(0).value_string("general.architecture", "other").build());
  write_file(dir / "m-00002-of-00002.gguf", part(1).build());
  expect_error(ErrorKind::declined, "architecture other is not supported", [&] { open_model(dir.path().string()); });
}

}  // namespace
}  // namespace ingot
