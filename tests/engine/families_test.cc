// Tiny checkpoints of every family against fp32 logits from transformers, at every position: from safetensors, and from
// GGUF files that llama.cpp's own converter wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"

namespace ingot::testing {
namespace {

constexpr double kInt8Tolerance = 0.15;  // an int8 cache; of logits whose standard deviation is at least 1

double tolerance(const std::string& name) {
  return name.find("-gguf-q") != std::string::npos ? kQuantizedTolerance : kTolerance;
}

double difference(const std::string& name, const std::string& device, const std::string& isa,
                  const std::string& kv_dtype = "f16") {
  EngineOptions options = fixture_options(fixture_model(name), device);
  options.isa = isa;
  options.kv_dtype = kv_dtype;
  // Experts are chosen for all rows of a step together.
  if (device == "metal" && name == "qwen3moe-gguf-bf16" && !soak())
    options.max_step_tokens = options.max_logits_rows = 4;
  const double found = reference_difference(options, name);
  ::testing::Test::RecordProperty("max_difference_" + device + (isa.empty() ? "" : "_" + isa), std::to_string(found));
  return found;
}

class Family : public ::testing::TestWithParam<std::string> {};

TEST_P(Family, MatchesOnTheCpu) {
  for (const char* isa : {"", "portable"}) EXPECT_LT(difference(GetParam(), "cpu", isa), tolerance(GetParam())) << isa;
}

TEST_P(Family, MatchesOnCuda) {
  INGOT_SKIP_WITHOUT_CUDA(std::string("cuda"));
  EXPECT_LT(difference(GetParam(), "cuda", ""), kTolerance);
}

TEST_P(Family, MutationsWouldBeSeen) {
  std::ifstream file(fixture_model(GetParam()) + "/report.json");
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_GE(report["logits_std"].get<double>(), 1.0);
  EXPECT_GE(report["mutations"].size(), 2u);
  for (const auto& [name, moved] : report["mutations"].items()) EXPECT_GT(moved.get<double>(), 10 * kTolerance) << name;
}

const std::vector<std::string> kCheckpoints = {
    "mistral-f16",          "mistral-gguf-bf16",  "mistral-gguf-f16",  "qwen2-bf16",       "qwen2-f16",
    "qwen2-gguf-bf16",      "qwen2-gguf-f16",     "qwen2-window-bf16", "qwen3-bf16",       "qwen3-f16",
    "qwen3-gguf-bf16",      "qwen3-gguf-f16",     "qwen3moe-bf16",     "qwen3moe-f16",     "qwen3moe-gguf-bf16",
    "qwen3moe-gguf-f16",    "qwen3moe-gguf-q8_0", "gpt2-bf16",         "gpt2-f16",         "gpt2-gguf-bf16",
    "qwen3moe-sparse-bf16", "gpt2-gguf-f16",      "smollm3-bf16",      "smollm3-f16",      "smollm3-gguf-bf16",
    "smollm3-gguf-f16",     "gemma3-bf16",        "gemma3-f16",        "gemma3-gguf-bf16", "gemma3-gguf-f16",
    "gemma3-gguf-q8_0",     "gemma3-scaled-bf16", "granite-bf16",      "granite-f16",      "granite-gguf-bf16",
    "granite-gguf-f16",
};
const std::vector<std::string> kBlockFormats = {
    "qwen3-wide-gguf-q4_1",   "qwen3-wide-gguf-q5_0",   "qwen3-wide-gguf-q5_1",   "qwen3-wide-gguf-q2_k",
    "qwen3-wide-gguf-q3_k_m", "qwen3-wide-gguf-q4_k_m", "qwen3-wide-gguf-q5_k_m", "qwen3-wide-gguf-q6_k",
};
// How a file is read is the CPU's tests' matter; on Metal each family runs once, most in bf16: of that type all kernels
// are compiled once, and the block formats have the other.
const std::vector<std::string> kOnMetal = {
    "mistral-gguf-f16",  "qwen2-window-bf16", "qwen3-bf16",     "qwen3moe-gguf-bf16", "qwen3moe-sparse-bf16",
    "smollm3-gguf-bf16", "gemma3-bf16",       "gpt2-gguf-bf16", "granite-gguf-bf16",
};
// Files are mixtures: q3_k_m has q3_k to q6_k. The default model has q4_1 and q8_0, fixtures_test.cc q4_0; q5_0 and
// q5_1, alone and of experts, are the conformance suite's.
const std::vector<std::string> kBlockFormatsOnMetal = {"qwen3-wide-gguf-q2_k", "qwen3-wide-gguf-q3_k_m"};

// With a sanitizer each family once from either kind of file.
INSTANTIATE_TEST_SUITE_P(Checkpoints, Family,
                         ::testing::ValuesIn(unless_sanitized<std::string>(
                             kCheckpoints,
                             {"mistral-f16", "mistral-gguf-bf16", "qwen2-window-bf16", "qwen2-gguf-f16", "qwen3-bf16",
                              "qwen3-gguf-f16", "qwen3moe-sparse-bf16", "qwen3moe-gguf-q8_0", "gpt2-f16",
                              "gpt2-gguf-bf16", "smollm3-bf16", "smollm3-gguf-f16", "gemma3-scaled-bf16",
                              "gemma3-gguf-q8_0", "granite-f16", "granite-gguf-bf16"})),
                         test_name);
INSTANTIATE_TEST_SUITE_P(BlockFormats, Family,
                         ::testing::ValuesIn(unless_sanitized<std::string>(kBlockFormats, {"qwen3-wide-gguf-q5_1",
                                                                                           "qwen3-wide-gguf-q2_k",
                                                                                           "qwen3-wide-gguf-q3_k_m"})),
                         test_name);

// In strict mode: the software device checks every access on the way.
class MetalFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(MetalFamily, MatchesOnMetal) {
  test::metal_in_strict_mode();
  EXPECT_LT(difference(GetParam(), "metal", ""), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MetalFamily,
                         ::testing::ValuesIn(soak() ? kCheckpoints
                                                    : unless_sanitized<std::string>(kOnMetal, {"gemma3-bf16"})),
                         test_name);

// The block formats that llama-quantize writes.
class MetalBlockFormat : public ::testing::TestWithParam<std::string> {};

TEST_P(MetalBlockFormat, MatchesOnMetal) {
  test::metal_in_strict_mode();
  EXPECT_LT(difference(GetParam(), "metal", ""), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MetalBlockFormat,
                         ::testing::ValuesIn(soak() ? kBlockFormats
                                                    : unless_sanitized<std::string>(kBlockFormatsOnMetal, {})),
                         test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MetalBlockFormat);  // sanitizers look at the kernels in tests/backend
INSTANTIATE_TEST_SUITE_P(Experts, MetalBlockFormat,
                         ::testing::ValuesIn(with_soak<std::string>({}, {"qwen3moe-gguf-q8_0"})), test_name);

// A multiplier that its config.json leaves out is 1, which is another model.
TEST(Granite, EachMultiplierCounts) {
  const std::filesystem::path fixture = fixture_model("granite-f16"),
                              folder = ::testing::TempDir() + "/granite_without";
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    std::filesystem::create_directories(folder);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(fixture / "config.json"));
    ASSERT_EQ(config.erase(key), 1u) << key;
    std::ofstream(folder / "config.json") << config;
    std::filesystem::copy_file(fixture / "model.safetensors", folder / "model.safetensors");
    EXPECT_GT(reference_difference(fixture_options(folder.string(), "cpu"), "granite-f16"), 10 * kTolerance) << key;
    std::filesystem::remove_all(folder);
  }
}

// With K and V rounded to eight bits; docs/models.md has the bound.
class Int8Family : public ::testing::TestWithParam<std::string> {};

TEST_P(Int8Family, MatchesOnTheCpu) {
  for (const char* isa : {"", "portable"}) EXPECT_LT(difference(GetParam(), "cpu", isa, "int8"), kInt8Tolerance) << isa;
  EXPECT_NE(difference(GetParam(), "cpu", "", "int8"), difference(GetParam(), "cpu", "", "f16")) << "nothing changed";
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, Int8Family,
                         ::testing::ValuesIn(unless_sanitized<std::string>(
                             {"mistral-f16", "qwen2-bf16", "qwen2-window-bf16", "qwen3-bf16", "qwen3moe-f16",
                              "gpt2-f16", "smollm3-gguf-f16", "gemma3-bf16", "granite-f16"},
                             {"qwen2-window-bf16", "gemma3-bf16"})),
                         test_name);

// The kernels know heads, windows and norms of queries and keys, not families.
class MetalInt8Family : public ::testing::TestWithParam<std::string> {};

TEST_P(MetalInt8Family, MatchesOnMetal) {
  test::metal_in_strict_mode();
  EXPECT_LT(difference(GetParam(), "metal", "", "int8"), kInt8Tolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MetalInt8Family,
                         ::testing::ValuesIn(with_soak<std::string>({"llama-bf16-llama3"},
                                                                    {"gemma3-bf16", "mistral-f16", "qwen2-bf16",
                                                                     "qwen2-window-bf16", "qwen3-bf16", "qwen3moe-f16",
                                                                     "gpt2-f16", "smollm3-gguf-f16", "granite-f16"})),
                         test_name);

// A prompt as long as the model's context. logits.npy has the rows that positions.json names.
class LongContext : public ::testing::TestWithParam<std::string> {};

void expect_long_match(const std::string& name, const std::string& device) {
  const Reference reference = fixture_reference(name);
  std::ifstream file(fixture_model(name) + "/positions.json");
  const std::vector<int64_t> positions = nlohmann::json::parse(file).get<std::vector<int64_t>>();
  ASSERT_EQ(positions.size(), reference.logits.size());

  EngineOptions options;
  options.model = fixture_model(name);
  options.device = device;
  options.max_seqs = 1;
  const std::unique_ptr<Engine> engine = Engine::load(options);
  const auto length = static_cast<int64_t>(reference.ids.size());
  ASSERT_GE(length, 32768);
  ASSERT_LE(length, engine->limits().max_model_len);
  const std::vector<int32_t> blocks = assign_blocks(engine->limits(), 1, length, 5)[0];
  StepBuilder builder(engine->limits().block_size);
  Logits logits;
  for (int64_t done = 0; done < length;) {
    const int64_t rows = std::min<int64_t>(engine->limits().max_step_tokens, length - done);
    builder.clear();
    builder.add(std::span(reference.ids).subspan(static_cast<size_t>(done), static_cast<size_t>(rows)), done, blocks);
    for (const int64_t position : positions)
      if (position >= done && position < done + rows)
        builder.sample(static_cast<int32_t>(position - done), {}, -1, {.kind = RowOutput::Kind::full_logits});
    for (RowResult& row : engine->run(builder.finish()).rows) logits.push_back(std::move(row.logits));
    done += rows;
  }
  EXPECT_LT(max_difference(logits, reference.logits), kTolerance);
}

TEST_P(LongContext, MatchesTheReferenceToItsEnd) {
  if (kSanitized && !soak()) GTEST_SKIP() << "numbers, which a sanitizer does not see";
  expect_long_match(GetParam(), "cpu");
}
TEST_P(LongContext, MatchesOnCudaToo) {
  INGOT_SKIP_WITHOUT_CUDA(std::string("cuda"));
  expect_long_match(GetParam(), "cuda");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LongContext,
                         ::testing::ValuesIn(with_soak<std::string>({"long-yarn-f16", "long-gemma3-f16"},
                                                                    {"long-llama3-f16"})),
                         test_name);

}  // namespace
}  // namespace ingot::testing
