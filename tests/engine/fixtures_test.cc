// Tiny checkpoints against fp32 logits from transformers, at every position.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

class Fixture : public ::testing::TestWithParam<std::string> {};

std::unique_ptr<Engine> load(const std::string& name, const std::string& isa = "", const std::string& device = "cpu") {
  EngineOptions options;
  options.model = fixture_model(name);
  options.device = device;
  options.threads = 2;
  options.isa = isa;
  options.max_seqs = 2;
  options.max_logits_rows = 128;
  return Engine::load(options);
}

TEST_P(Fixture, LogitsMatchTheReference) {
  const Reference reference = fixture_reference(GetParam());
  const std::unique_ptr<Engine> engine = load(GetParam());
  const double difference = max_difference(run_alone(*engine, reference.ids), reference.logits);
  const bool quantized = GetParam().find("q8_0") != std::string::npos || GetParam().find("q4_0") != std::string::npos;
  EXPECT_LT(difference, quantized ? kQuantizedTolerance : kTolerance);
  RecordProperty("max_difference", std::to_string(difference));
}

// f16 or bf16 activations, by the checkpoint; the software device checks every access on the way.
void expect_gpu_matches(const std::string& name, const std::string& device) {
  INGOT_SKIP_WITHOUT_CUDA(device);
  test::metal_in_strict_mode();
  const double difference = reference_difference(fixture_options(fixture_model(name), device), name);
  EXPECT_LT(difference, kTolerance);
  ::testing::Test::RecordProperty("max_difference", std::to_string(difference));
}
TEST_P(Fixture, CudaMatchesToo) { expect_gpu_matches(GetParam(), "cuda"); }

TEST_P(Fixture, PortablePathMatchesToo) {
  const Reference reference = fixture_reference(GetParam());
  const std::unique_ptr<Engine> engine = load(GetParam(), "portable");
  const bool quantized = GetParam().find("q8_0") != std::string::npos || GetParam().find("q4_0") != std::string::npos;
  EXPECT_LT(max_difference(run_alone(*engine, reference.ids), reference.logits),
            quantized ? kQuantizedTolerance : kTolerance);
}

// The comparison means something only if getting the model wrong moves the logits far more than the tolerance.
TEST_P(Fixture, MutationsWouldBeSeen) {
  std::ifstream file(fixture_model(GetParam()) + "/report.json");
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_GE(report["logits_std"].get<double>(), 1.0);
  EXPECT_GE(report["mutations"].size(), 4u);
  for (const auto& [name, difference] : report["mutations"].items())
    EXPECT_GT(difference.get<double>(), 10 * kTolerance) << name;
}

const std::vector<std::string> kFixtures = {
    "llama-bf16-bias",          "llama-bf16-linear", "llama-bf16-llama3",   "llama-bf16-tied",
    "llama-f16-untied-sharded", "llama-f16-yarn",    "gguf-bf16-bias",      "gguf-bf16-llama3",
    "gguf-f16-llama3",          "gguf-q4_0-llama3",  "mistral-bf16-window", "gguf-q8_0-llama3",
};

INSTANTIATE_TEST_SUITE_P(Checkpoints, Fixture, ::testing::ValuesIn(kFixtures), test_name);

// What a kernel sees of a checkpoint: biases, a window, either type, long rotations, blocks of 4 and of 8 bits.
class MetalFixture : public ::testing::TestWithParam<std::string> {};

TEST_P(MetalFixture, LogitsMatchTheReference) { expect_gpu_matches(GetParam(), "metal"); }

INSTANTIATE_TEST_SUITE_P(Checkpoints, MetalFixture,
                         ::testing::ValuesIn(soak() ? kFixtures
                                                    : unless_sanitized<std::string>(
                                                          {"llama-bf16-bias", "llama-bf16-llama3", "llama-f16-yarn",
                                                           "mistral-bf16-window", "gguf-q4_0-llama3"},
                                                          {"llama-bf16-bias"})),
                         test_name);

}  // namespace
}  // namespace ingot::testing
