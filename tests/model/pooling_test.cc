#include "model/pooling.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/json.h"
#include "formats/test_files.h"

namespace ingot {
namespace {

using Kind = Pooling::Kind;

// A folder of sentence-transformers with these modules behind the transformer, and this 1_Pooling/config.json.
ModelConfig read_folder(const std::vector<std::string>& modules, const std::string& pooling,
                        const std::string& config_json = "{}", const std::string& name = "model") {
  const TempDir dir;
  const std::filesystem::path folder = dir.path() / name;
  std::filesystem::create_directories(folder / "1_Pooling");
  nlohmann::json list = {{{"path", ""}, {"type", "sentence_transformers.models.Transformer"}}};
  for (const std::string& module : modules)
    list.push_back(
        {{"path", module == "Pooling" ? "1_Pooling" : ""}, {"type", "sentence_transformers.models." + module}});
  if (!modules.empty()) std::ofstream(folder / "modules.json") << list;
  std::ofstream(folder / "1_Pooling" / "config.json") << pooling;
  const nlohmann::json json = nlohmann::json::parse(config_json);
  ModelConfig config;
  read_pooling(folder, JsonView(json, "config.json"), config);
  return config;
}

TEST(Pooling, ModesOfSentenceTransformers) {
  const std::pair<const char*, Kind> cases[] = {
      {R"({"pooling_mode_lasttoken":true,"pooling_mode_mean_tokens":false})", Kind::last},
      {R"({"pooling_mode_mean_tokens":true})", Kind::mean},
      {R"({"pooling_mode_cls_token":true})", Kind::first},
      {R"({"pooling_mode":"lasttoken"})", Kind::last},
      {R"({"pooling_mode_max_tokens":true})", Kind::none},
      {R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})", Kind::none},
  };
  for (const auto& [json, kind] : cases)
    EXPECT_EQ(read_folder({"Pooling", "Normalize"}, json).pooling.kind, kind) << json;
  EXPECT_TRUE(read_folder({"Pooling", "Normalize"}, cases[0].first).pooling.normalize);
  EXPECT_FALSE(read_folder({"Pooling"}, cases[0].first).pooling.normalize);
  EXPECT_FALSE(read_folder({}, cases[0].first).pooling) << "no modules.json";
  EXPECT_FALSE(read_folder({"Pooling", "Dense", "Normalize"}, cases[0].first).pooling) << "its vectors would be others";
}

TEST(Pooling, Rerankers) {
  EXPECT_FALSE(read_folder({}, "{}").reranks);
  EXPECT_TRUE(read_folder({}, "{}", R"({"classifier_from_token":["no","yes"]})").reranks);
  EXPECT_FALSE(read_folder({}, "{}", R"({"classifier_from_token":["bad","good"]})").reranks);
  EXPECT_TRUE(read_folder({}, "{}", "{}", "models--Qwen--Qwen3-Reranker-0.6B").reranks);
}

}  // namespace
}  // namespace ingot
