// Checkpoints that other programs packed into few bits, against fp32 logits of transformers over the weights that the
// same programs unpack.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/metal_mode.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

struct Packed {
  const char* name;
  double rounding = 0;  // of weights that are quantized again: what it adds to the tolerance
};
void PrintTo(const Packed& packed, std::ostream* out) { *out << packed.name; }

constexpr Packed kPackedModels[] = {
    {"qwen2-awq-g128"},       {"llama-awq-g64"},         {"llama-gptq-g128-sym"}, {"qwen2-gptq-g32-asym"},
    {"llama-gptq-v2-asym"},   {"llama-gptq-act", 0.05},  {"llama-gptq-8bit"},     {"llama-mlx-4bit"},
    {"llama-mlx-8bit", 0.05}, {"llama-mlx-mixed", 0.05}, {"qwen3moe-mlx-4bit"},
};

double packed_difference(const std::string& name, const std::string& device, const std::string& isa) {
  EngineOptions options = fixture_options(fixture_model(name), device);
  options.isa = isa;
  return reference_difference(options, name);
}

class PackedModel : public ::testing::TestWithParam<Packed> {};

TEST_P(PackedModel, MatchesOnTheCpu) {
  for (const char* isa : {"", "portable"}) {
    const double d = packed_difference(GetParam().name, "cpu", isa);
    RecordProperty(std::string("difference_") + isa, std::to_string(d));
    EXPECT_LT(d, kQuantizedTolerance + GetParam().rounding) << isa;
  }
}

TEST_P(PackedModel, MutationsWouldBeSeen) {
  std::ifstream file(fixture_model(GetParam().name) + "/report.json");
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_GE(report["logits_std"].get<double>(), 1.0);
  EXPECT_GT(report["mutations"]["rows_off_by_one"].get<double>(), 10 * kQuantizedTolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PackedModel, ::testing::ValuesIn(kPackedModels));

class MetalPackedModel : public ::testing::TestWithParam<Packed> {};

TEST_P(MetalPackedModel, MatchesOnMetal) {
  test::metal_in_strict_mode();
  const double d = packed_difference(GetParam().name, "metal", "");
  RecordProperty("difference", std::to_string(d));
  EXPECT_LT(d, kTolerance + GetParam().rounding);
}

// All become q4_0, q4_1 or q8_0, which other tests have on Metal.
INSTANTIATE_TEST_SUITE_P(Checkpoints, MetalPackedModel,
                         ::testing::ValuesIn(soak() ? std::vector<Packed>(std::begin(kPackedModels),
                                                                          std::end(kPackedModels))
                                                    : std::vector<Packed>()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MetalPackedModel);

}  // namespace
}  // namespace ingot::testing
