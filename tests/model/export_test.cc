// A folder's configuration, written as a GGUF file's metadata, read, and written as config.json again.
#include "model/export.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/gguf.h"
#include "formats/json.h"
#include "model/config_read.h"
#include "model/open_model.h"
#include "model/weights.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What a GGUF file of this model says.
ModelConfig config_of_gguf(const GgufExport& exported) {
  const fs::path path = fs::temp_directory_path() / ("ingot_export_" + std::to_string(::getpid()) + ".gguf");
  write_gguf({path, true}, exported.values, *exported.checkpoint, {});
  ModelConfig config = open_model(path.string()).config;
  fs::remove(path);
  return config;
}

class RoundTrip : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, KeepsTheConfiguration) {
  const fs::path folder = fs::path(INGOT_FIXTURES) / "models" / GetParam();
  const ModelFiles files = open_model(folder.string());
  const GgufExport exported = export_gguf(files.checkpoint, files.config);
  ModelConfig config = config_of_gguf(exported);
  config.bos_id = files.config.bos_id;  // a tokenizer's, which is not written here
  config.eos_ids = files.config.eos_ids;
  const std::string text = write_hf_config(config);

  // Key by key, but for those that nothing depends on, and those that a GGUF file cannot tell apart.
  const std::set<std::string> left_out = {"pad_token_id", "n_ctx", "use_sliding_window", "sliding_window_pattern"};
  json before = read_json_file(folder / "config.json"), after = json::parse(text);
  if (before["model_type"] == "mistral")
    before.update({{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}});
  if (before.contains("hidden_activation")) before.erase("hidden_act");  // as Gemma's own code does
  for (const char* key : {"rope_scaling", "rope_parameters"})            // written as the first, with rope_type
    if (const json scaling = before.value(key, json()); scaling.is_object()) {
      before.erase(key);
      EXPECT_EQ(after["rope_scaling"]["rope_type"], scaling.value("rope_type", scaling.value("type", "")));
      EXPECT_EQ(after["rope_scaling"]["factor"], scaling["factor"]);
    }
  before.erase("dtype");
  before["torch_dtype"] = "float16";
  for (const auto& [key, value] : before.items())
    if (!value.is_null() && !left_out.contains(key)) {
      EXPECT_EQ(after.value(key, json()), value) << key;
    }
  EXPECT_EQ(after.contains("hidden_act") + after.contains("hidden_activation") + after.contains("activation_function"),
            1);

  // And as a whole: the same metadata, and the folder's own tensors.
  ModelConfig again = read_hf_config_text(text, "");
  again.name = files.config.name;
  EXPECT_EQ(write_gguf_config(again).bytes(), exported.values.bytes());
  EXPECT_EQ(again.norm_weight_offset, files.config.norm_weight_offset);
  CheckedWeights(*files.checkpoint, again, NameStyle::hugging_face);
}

INSTANTIATE_TEST_SUITE_P(Families, RoundTrip,
                         ::testing::Values("llama-bf16-bias", "llama-bf16-linear", "llama-f16-yarn", "mistral-f16",
                                           "qwen2-f16", "qwen3-f16", "qwen3moe-f16", "gpt2-f16", "smollm3-f16",
                                           "gemma3-f16", "granite-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// GGUF has one architecture for both.
TEST(WriteHfConfig, AWindowMakesAMistral) {
  ModelConfig config = open_model((fs::path(INGOT_FIXTURES) / "models" / "mistral-gguf-f16").string()).config;
  EXPECT_EQ(json::parse(write_hf_config(config))["architectures"], json({"LlamaForCausalLM"}));
  config.sliding_window = 16;
  const std::string text = write_hf_config(config);
  EXPECT_EQ(json::parse(text)["model_type"], "mistral");
  EXPECT_EQ(read_hf_config_text(text, "").layer(1).window, 16);
}

}  // namespace
}  // namespace ingot
