// What cannot run is declined by loading and by inspecting with the same sentence, before anything is loaded.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/loader.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

namespace fs = std::filesystem;

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Decline : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("ingot_decline_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // A checkpoint with some keys of its config.json changed: what both ways say, on one device.
  void expect(const std::string& model, const nlohmann::json& change, const std::string& sentence, bool dummy = false,
              const std::string& device = "cpu") {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(fixture_model(model) + "/config.json"));
    config.update(change);
    std::ofstream(dir_ / "config.json") << config;
    fs::copy_file(fixture_model(model) + "/model.safetensors", dir_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    EngineOptions options;
    options.model = dir_.string();
    options.device = device;
    if (dummy) options.load_format = "dummy";
    const std::string loading = error_of([&] { Engine::load(options); });
    EXPECT_NE(loading.find(sentence), std::string::npos) << loading;
    EXPECT_EQ(error_of([&] { inspect_model(options); }), loading);
  }

  fs::path dir_;
};

TEST_F(Decline, WithOneSentence) {
  expect("qwen3-bf16", {{"architectures", {"PhiForCausalLM"}}}, "architecture PhiForCausalLM is not supported");
  expect("qwen3-bf16", {{"architectures", {"EagleLlamaForCausalLM"}}}, "EagleLlamaForCausalLM guesses tokens from");
  expect("qwen3-bf16", {{"architectures", {"LlamaForCausalLMEagle3"}}}, "an EAGLE-3 head of 2 layers is not run here");
  expect("qwen3-bf16", {{"num_nextn_predict_layers", 1}},
         "num_nextn_predict_layers is 1: layers that guess tokens (MTP)");
  expect("qwen3-bf16", {{"quantization_config", {{"quant_method", "exl2"}}}}, "quantized with exl2 are not supported");
  expect("llama-awq-g64", {{"quantization_config", {{"quant_method", "awq"}, {"bits", 3}}}},
         "with AWQ in 3 bits are not");
  expect("llama-mlx-4bit", {{"quantization", {{"bits", 4}, {"mode", "mxfp4"}}}}, "MLX's mode mxfp4 are not supported");
  // Weights that were packed in another way than the configuration says.
  expect("llama-awq-g64", {{"quantization_config", {{"quant_method", "awq"}, {"group_size", 128}}}},
         "scales: its shape");
  expect("llama-awq-g64", {{"quantization_config", {{"quant_method", "gptq"}, {"group_size", 64}}}},
         "scales: its shape");
  expect("qwen2-gptq-g32-asym", {{"quantization_config", {{"quant_method", "gptq"}, {"group_size", 32}}}},
         "a zero point is not the middle level although config.json says sym");
  expect("llama-gptq-g128-sym", {{"quantization_config", {{"quant_method", "gptq"}, {"checkpoint_format", "gptq_v2"}}}},
         "a zero point is not the middle level although config.json says sym");
  expect("llama-gptq-g128-sym", {{"quantization_config", nullptr}}, "is missing from the file");
  // Head sizes that the kernels do not have; with dummy weights, as no file would fit.
  expect("qwen3-bf16", {{"head_dim", 12}}, "cpu cannot run this model: head size 12: the CPU runs multiples of 8",
         true);
  expect("qwen3-bf16", {{"head_dim", 264}}, "metal cannot run this model: head size 264", true, "metal");
  // A configuration of another model than the weights'.
  expect("qwen3-bf16", {{"head_dim", 16}}, "its shape is [72, 48], the configuration asks for [48, 48]");
  expect("qwen3-bf16", {{"num_hidden_layers", 1}}, "tensor model.layers.1.");
  expect("qwen3-bf16", {{"num_hidden_layers", 3}}, "tensor model.layers.2.");
  expect("qwen3-bf16", {{"architectures", {"LlamaForCausalLM"}}}, "not part of a llama model with this config.json");
  expect("qwen3-bf16", {{"layer_types", {"full_attention"}}}, "layer_types has 1 entries for 2 layers");
  expect("qwen3moe-bf16", {{"num_experts", 2}}, "num_experts_per_tok must be from 1 to 2, got 3");
  expect("qwen3moe-bf16", {{"num_experts", 6}}, "mlp.gate.weight: its shape is [7, 64]");
  expect("gemma3-bf16", {{"final_logit_softcapping", 30.0}}, "final_logit_softcapping is not supported");
  expect("gpt2-bf16", {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx");
}

}  // namespace
}  // namespace ingot::testing
