#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/json.h"
#include "model/config_read.h"

namespace ingot {
namespace {

// transformers computes in fp32; we compute in double. A few roundings apart, never more.
constexpr double kRelative = 2e-6;

TEST(Rope, EqualsTransformers) {
  const nlohmann::json cases = read_json_file(std::string(INGOT_FIXTURES) + "/rope.json");
  ASSERT_GE(cases.size(), 10u);
  for (const nlohmann::json& golden : cases) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const ModelConfig config = read_hf_config_text(golden["config"].dump(), "");
    const std::vector<float> table = rope_inv_freq(config);
    const auto expected = golden["inv_freq"].get<std::vector<double>>();
    ASSERT_EQ(table.size(), expected.size());
    for (size_t i = 0; i < table.size(); ++i)
      EXPECT_NEAR(table[i], expected[i], std::fabs(expected[i]) * kRelative) << "pair " << i;
    EXPECT_NEAR(rope_attention_factor(config), golden["attention_factor"].get<double>(), 1e-6);
  }
}

TEST(Rope, FactorsOfAGgufFileDivide) {
  ModelConfig config;
  config.rope_dims = 4;
  config.rope_theta = 100.0;
  config.rope_scaling.factors = {2.0f, 4.0f};
  EXPECT_EQ(rope_inv_freq(config), (std::vector<float>{0.5f, 0.025f}));
  config.rope_scaling.kind = RopeScaling::Kind::linear;
  config.rope_scaling.factor = 2.0;
  EXPECT_EQ(rope_inv_freq(config), (std::vector<float>{0.25f, 0.0125f}));
  EXPECT_EQ(rope_attention_factor(config), 1.0f);
}

}  // namespace
}  // namespace ingot
