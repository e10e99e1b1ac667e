// Weights quantized while they are loaded: against the same engine over fp32 copies of the quantized weights, where
// nothing but the rounding of activations differs; and against fp32 logits of transformers over the stored ones, which
// is what a user loses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/metal_mode.h"
#include "core/error.h"
#include "engine/devices.h"
#include "engine/loader.h"
#include "engine/memory_plan.h"
#include "engine/sequences.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "formats/gguf_write.h"
#include "formats/test_files.h"
#include "model/export.h"
#include "model/quantized.h"

namespace ingot::testing {
namespace {

namespace fs = std::filesystem;

EngineOptions quantize_options(const std::string& model, const std::string& quantize,
                               const std::string& device = "cpu") {
  EngineOptions options = fixture_options(model, device);
  options.quantize = quantize;
  return options;
}

Logits logits_of(const EngineOptions& options, const std::vector<int32_t>& ids) {
  const std::unique_ptr<Engine> engine = Engine::load(options);
  return engine->limits().max_step_tokens > 1 ? run_as_served(*engine, ids) : run_row_by_row(*engine, ids);
}

// The values of a tensor of a checkpoint as the file of a Hugging Face model has them.
std::vector<float> values_as_stored(const Checkpoint& checkpoint, const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  dequantize(tensor.dtype, TensorBytes(checkpoint, tensor).bytes.data(), values.size(), values.data());
  const bool turned_at_load = tensor.name.find(".c_") != std::string::npos && tensor.shape.size() == 2;  // GPT-2's
  if (!turned_at_load) return values;
  std::vector<float> turned(values.size());
  const auto rows = static_cast<size_t>(tensor.shape[0]), cols = static_cast<size_t>(tensor.shape[1]);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) turned[c * rows + r] = values[r * cols + c];
  return turned;
}

// A model folder with the quantized values of `options` in fp32.
void write_dequantized(const EngineOptions& options, const fs::path& folder) {
  const ModelFiles files = open_model(options);
  nlohmann::ordered_json header;
  std::string data;
  for (const TensorView& tensor : files.checkpoint->tensors()) {
    const TensorView& stored = files.checkpoint->stored().get(tensor.name);
    const std::vector<float> values = values_as_stored(*files.checkpoint, tensor);
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header[tensor.name] = {{"dtype", "F32"}, {"shape", stored.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  write_file(folder / "model.safetensors",
             std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data);
  fs::copy_file(fs::path(options.model) / "config.json", folder / "config.json");
}

// How far quantized weights on `device` are from their own values in fp32.
double rounding(const std::string& name, const std::string& quantize, const std::string& device) {
  const EngineOptions options = quantize_options(fixture_model(name), quantize, device);
  const TempDir folder;
  write_dequantized(options, folder.path());
  std::vector<int32_t> ids = fixture_reference(name).ids;
  if (options.max_step_tokens == 1) ids.resize(12);
  return max_difference(logits_of(options, ids), logits_of(quantize_options(folder.path().string(), ""), ids));
}

class QuantizeAtLoad : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantizeAtLoad, TheCpuComputesWithTheQuantizedValues) {
  for (const char* quantize : {"int8", "int4"})
    EXPECT_LT(rounding(GetParam(), quantize, "cpu"), kQuantizedTolerance) << quantize;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, QuantizeAtLoad,
                         ::testing::Values("llama-bf16-wide", "llama-bf16-tied", "llama-f16-untied-sharded",
                                           "mistral-f16", "qwen3moe-bf16", "gpt2-bf16", "gemma3-f16"));

class QuantizeAtLoadMetal : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(QuantizeAtLoadMetal, MetalComputesWithTheQuantizedValues) {
  test::metal_in_strict_mode();
  EXPECT_LT(rounding(std::get<0>(GetParam()), std::get<1>(GetParam()), "metal"), kTolerance);
}

// int4 is q4_k, and q8_0 for some: both, with bf16 beside them.
using Pair = std::tuple<const char*, const char*>;
INSTANTIATE_TEST_SUITE_P(
    Checkpoints, QuantizeAtLoadMetal,
    ::testing::ValuesIn(with_soak<Pair>(unless_sanitized<Pair>({{"llama-bf16-wide", "int4"}}, {}),
                                        {Pair{"llama-bf16-wide", "int8"}, Pair{"qwen3moe-f16", "int8"},
                                         Pair{"qwen3moe-bf16", "int8"}, Pair{"qwen3moe-bf16", "int4"},
                                         Pair{"gpt2-bf16", "int8"}, Pair{"gpt2-bf16", "int4"}})));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QuantizeAtLoadMetal);

// The documented loss (docs/models.md) on tiny models, whose logits have a deviation of about 1.
TEST(QuantizeAtLoadError, IsWhatTheDocsSay) {
  struct Loss {
    const char *model, *quantize;
    double least, most;
  };
  for (const Loss& loss : {Loss{"llama-bf16-wide", "int8", 0.01, 0.15},
                           {"llama-bf16-wide", "int4", 0.2, 1.0},
                           {"qwen3moe-bf16", "int8", 0.01, 0.3},
                           {"gpt2-bf16", "int8", 0.01, 0.15},
                           {"gemma3-bf16", "int8", 0.01, 0.3}}) {
    const Reference reference = fixture_reference(loss.model);
    const double d = max_difference(
        logits_of(quantize_options(fixture_model(loss.model), loss.quantize), reference.ids), reference.logits);
    RecordProperty(std::string(loss.model) + "_" + loss.quantize, std::to_string(d));
    EXPECT_LT(d, loss.most) << loss.model << " " << loss.quantize;
    EXPECT_GT(d, loss.least) << loss.model << " " << loss.quantize << ": nothing was quantized";
  }
}

// What others packed stays as it is; what they left plain is quantized.
TEST(QuantizeAtLoadPacked, QuantizesTheRest) {
  const std::string model = fixture_model("llama-gptq-g128-sym");
  const Reference reference = fixture_reference("llama-gptq-g128-sym");
  EXPECT_LT(max_difference(logits_of(quantize_options(model, "int8"), reference.ids), reference.logits), 0.2);
  EXPECT_LT(inspect_model(quantize_options(model, "int8")).plan.weight_bytes,
            inspect_model(quantize_options(model, "")).plan.weight_bytes);
}

// Stacked experts and interleaved heads of a GGUF file, one by one in safetensors: the same numbers.
TEST(QuantizeAtLoadGguf, GivesWhatSafetensorsGive) {
  for (const auto& [folder, gguf] :
       {std::pair{"qwen3moe-f16", "qwen3moe-gguf-f16"}, std::pair{"llama-bf16-llama3", "gguf-bf16-llama3"},
        std::pair{"gpt2-f16", "gpt2-gguf-f16"}})
    for (const char* quantize : {"int8", "int4"}) {
      const std::vector<int32_t> ids = fixture_reference(folder).ids;
      EXPECT_LT(max_difference(logits_of(quantize_options(fixture_model(folder), quantize), ids),
                               logits_of(quantize_options(fixture_model(gguf), quantize), ids)),
                1e-4)
          << gguf << " " << quantize;
    }
}

// How far a folder written as a GGUF file is from the folder, loaded with `quantize`.
double difference_of_export(const std::string& name, const std::string& quantize) {
  const EngineOptions options = quantize_options(fixture_model(name), quantize);
  const ModelFiles files = open_model(options);
  const GgufExport exported = export_gguf(files.checkpoint, files.config);
  const TempDir folder;
  write_gguf({folder / "model.gguf"}, exported.values, *exported.checkpoint, {});
  const std::vector<int32_t> ids = fixture_reference(name).ids;
  return max_difference(logits_of(quantize_options((folder / "model.gguf").string(), ""), ids),
                        logits_of(options, ids));
}

// A last bit of a scale or an angle may differ; where activations are rounded to 8 bits or bf16, that may move one to
// its neighbour.
TEST(ExportedGguf, IsTheSameModel) {
  for (const std::string& name : unless_sanitized<std::string>(
           {"llama-f16-untied-sharded", "llama-f16-yarn", "mistral-f16", "qwen2-f16", "qwen3-f16", "qwen3moe-f16",
            "gpt2-f16", "smollm3-f16", "gemma3-f16", "granite-f16"},
           {"llama-f16-untied-sharded", "qwen3moe-f16", "gemma3-f16"}))
    EXPECT_LT(difference_of_export(name, ""), 1e-3) << name;
  for (const std::string& name :
       unless_sanitized<std::string>({"llama-bf16-wide", "llama-bf16-llama3", "llama-bf16-linear", "llama-bf16-tied",
                                      "qwen3moe-bf16", "gpt2-bf16", "gemma3-bf16", "qwen2-awq-g128", "llama-gptq-act"},
                                     {"gpt2-bf16", "qwen2-awq-g128", "llama-gptq-act"}))
    EXPECT_LT(difference_of_export(name, "int8"), 0.1) << name;
  EXPECT_LT(difference_of_export("qwen3moe-mlx-4bit", ""), 0.1);
}

TEST(ExportedGgufDeclines, WhatGgufCannotSay) {
  const std::pair<const char*, const char*> cases[] = {
      {"mistral-bf16-window", "GGUF cannot say its sliding window for the architecture llama"},
      {"qwen2-window-bf16", "GGUF cannot say its sliding window for the architecture qwen2"},
      {"gemma3-scaled-bf16", "GGUF cannot say its attention scale for the architecture gemma3"},
      {"qwen3moe-sparse-bf16", "GGUF cannot say how its experts are chosen for the architecture qwen3moe"},
  };
  for (const auto& [name, says] : cases) {
    const ModelFiles files = open_model(quantize_options(fixture_model(name), ""));
    expect_error(ErrorKind::declined, says, [&files = files] { export_gguf(files.checkpoint, files.config); });
  }
}

// A file of a format that is not made at load, embedding and head in it too.
std::string write_non_linear(const std::string& name, const TempDir& folder) {
  const ModelFiles files = open_model(quantize_options(fixture_model(name), ""));
  const auto quantized =
      quantize_checkpoint(files.checkpoint, files.config, files.style(), {DType::iq4_nl, DType::iq4_nl}, 2, true);
  const GgufExport exported = export_gguf(quantized, files.config);
  const std::string path = (folder / "model.gguf").string();
  write_gguf({path}, exported.values, *exported.checkpoint, {});
  return path;
}

TEST(QuantizedFile, OfNonLinearBlocksLosesLittle) {
  const TempDir folder;
  const EngineOptions options = quantize_options(write_non_linear("llama-bf16-wide", folder), "");
  EXPECT_EQ(open_model(options).config.weight_format, "iq4_nl");
  const Reference reference = fixture_reference("llama-bf16-wide");
  const double loss = max_difference(logits_of(options, reference.ids), reference.logits);
  RecordProperty("loss", std::to_string(loss));
  EXPECT_LT(loss, 1.0);
  EXPECT_GT(loss, 0.2) << "nothing was quantized";
}

TEST(QuantizedFileMetal, OfNonLinearBlocksIsTheCpus) {
  if (test::kSanitized) GTEST_SKIP() << "Metal kernels take long to compile then";
  test::metal_in_strict_mode();
  const TempDir folder;
  const std::string path = write_non_linear("llama-bf16-wide", folder);
  const EngineOptions metal = quantize_options(path, "", "metal");
  std::vector<int32_t> ids = fixture_reference("llama-bf16-wide").ids;
  if (metal.max_step_tokens == 1) ids.resize(12);
  EXPECT_LT(max_difference(logits_of(metal, ids), logits_of(quantize_options(path, ""), ids)), kQuantizedTolerance);
}

TEST(QuantizeAtLoadPlan, CountsTheQuantizedSize) {
  const auto weights = [](const std::string& quantize) {
    return static_cast<double>(
        inspect_model(quantize_options(fixture_model("llama-bf16-wide"), quantize)).plan.weight_bytes);
  };
  EXPECT_NEAR(weights("int8") / weights(""), 8.5 / 16, 0.03);
  EXPECT_LT(weights("int4"), 0.75 * weights("int8"));
}

TEST(QuantizeAtLoadPlan, DummiesAreQuantizedToo) {
  EngineOptions options = quantize_options(fixture_model("qwen3moe-bf16"), "int4");
  const uint64_t stored = inspect_model(options).plan.weight_bytes;
  options.load_format = "dummy";
  options.dtype = "bf16";
  EXPECT_EQ(inspect_model(options).plan.weight_bytes, stored);
  const Logits logits = logits_of(options, {3, 4, 5});
  ASSERT_EQ(logits.size(), 3u);
  EXPECT_TRUE(std::all_of(logits[2].begin(), logits[2].end(), [](float x) { return std::isfinite(x); }));
}

// bf16 weights may need the range of bf16 in activations, however few bits are made of them.
TEST(QuantizeAtLoadPlan, ActivationsOnMetalFollowTheFile) {
  const auto activation = [](const char* name, const char* quantize) {
    const EngineOptions options = quantize_options(fixture_model(name), quantize, "metal");
    return make_device(options, open_model(options).checkpoint.get())->info().activation;
  };
  EXPECT_EQ(activation("llama-bf16-wide", "int4"), DType::bf16);
  EXPECT_EQ(activation("mistral-f16", "int8"), DType::f16);
  EXPECT_EQ(activation("llama-mlx-8bit", ""), DType::bf16);
  EXPECT_EQ(activation("llama-gptq-act", ""), DType::f16);
}

TEST(QuantizeAtLoadError, RefusedWithTheSameSentence) {
  for (const EngineOptions& options : {quantize_options(fixture_model("gguf-q8_0-llama3"), "int8"),
                                       quantize_options(fixture_model("gpt2-bf16"), "int3")}) {
    std::string loading, inspecting;
    try {
      Engine::load(options);
    } catch (const Error& error) {
      loading = error.what();
    }
    try {
      inspect_model(options);
    } catch (const Error& error) {
      inspecting = error.what();
    }
    EXPECT_FALSE(loading.empty());
    EXPECT_EQ(loading, inspecting);
  }
}

}  // namespace
}  // namespace ingot::testing
