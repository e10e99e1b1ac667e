// Weights quantized while they are loaded, against fp32 logits from transformers.
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/loader.h"
#include "engine/memory_plan.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

EngineOptions options_for(const std::string& model, const std::string& quantize) {
  EngineOptions options;
  options.model = fixture_model(model);
  options.device = "cpu";
  options.threads = 2;
  options.max_seqs = 2;
  options.max_logits_rows = 128;
  options.quantize = quantize;
  return options;
}

double difference(const std::string& model, const std::string& quantize) {
  const Reference reference = fixture_reference(model);
  const std::unique_ptr<Engine> engine = Engine::load(options_for(model, quantize));
  return max_difference(run_alone(*engine, reference.ids), reference.logits);
}

TEST(QuantizeAtLoad, Int8StaysNearTheReference) {
  for (const char* model : {"llama-bf16-llama3", "gguf-bf16-llama3", "gpt2-bf16", "qwen3moe-bf16"}) {
    const double d = difference(model, "int8");
    RecordProperty(model, std::to_string(d));
    EXPECT_LT(d, 0.3) << model;
  }
}

TEST(QuantizeAtLoad, Int4IsCoarserAndStillTheModel) {
  const double d = difference("llama-bf16-llama3", "int4");
  RecordProperty("llama", std::to_string(d));
  EXPECT_LT(d, 3.0);
  EXPECT_GT(d, 0.05);  // otherwise nothing was quantized
}

TEST(QuantizeAtLoad, ThePlanCountsTheQuantizedSize) {
  const auto weights = [](const std::string& quantize) {
    return inspect_model(options_for("llama-bf16-llama3", quantize)).plan.weight_bytes;
  };
  EXPECT_LT(weights("int8"), 0.7 * weights(""));
  EXPECT_LT(weights("int4"), 0.95 * weights("int8"));
}

TEST(QuantizeAtLoad, RefusedWithTheSameSentence) {
  for (const EngineOptions& options : {options_for("gguf-q8_0-llama3", "int8"), options_for("gpt2-bf16", "int3")}) {
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
