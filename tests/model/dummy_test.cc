#include "model/dummy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "model/open_model.h"
#include "soak.h"

namespace ingot {
namespace {

std::string shipped(const std::string& name) { return std::string(INGOT_FIXTURES) + "/configs/" + name; }

struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(const ModelFiles& files, const TensorView& tensor, size_t elements) {
  std::vector<float> values(elements);
  dequantize(tensor.dtype, TensorBytes(*files.checkpoint, tensor).bytes.data(), elements, values.data());
  Moments m;
  for (float v : values) m.mean += v / static_cast<double>(elements);
  for (float v : values) m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(elements);
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(Dummy, HasEveryTensorOfALargeModelInAFewMegabytes) {
  const ModelFiles files = open_dummy_model(shipped("Devstral-Small-2507"), "auto");
  EXPECT_EQ(files.config.weight_format, "bf16");
  EXPECT_EQ(files.checkpoint->tensors().size(), 3u + 40 * 9);
  const TensorView& head = files.checkpoint->get("lm_head.weight");
  EXPECT_EQ(head.shape, (std::vector<int64_t>{131072, 5120}));
  EXPECT_EQ(head.data.size(), 131072u * 5120 * 2);
  // Longer than the pattern, to its end.
  const TensorBytes down(*files.checkpoint, files.checkpoint->get("model.layers.39.self_attn.o_proj.weight"));
  EXPECT_EQ(down.bytes.size(), 5120u * 4096 * 2);
  EXPECT_NE(std::to_integer<int>(down.bytes.back()) | std::to_integer<int>(down.bytes[down.bytes.size() - 3]), 0);
  const TensorBytes norm(*files.checkpoint, files.checkpoint->get("model.norm.weight"));
  EXPECT_EQ(std::vector<float>(5120, 1.0f),
            std::vector<float>(reinterpret_cast<const float*>(norm.bytes.data()),
                               reinterpret_cast<const float*>(norm.bytes.data()) + 5120));
}

TEST(Dummy, ValuesHaveTheScaleOfAModelInEveryFormat) {
  for (const char* name :
       test::unless_sanitized<const char*>({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k",
                                            "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"},
                                           {"bf16", "q4_0", "q3_k"})) {
    SCOPED_TRACE(name);
    const ModelFiles files = open_dummy_model(shipped("TinyLlama-1.1B"), name);
    const TensorView& tensor = files.checkpoint->get("model.layers.3.mlp.up_proj.weight");
    EXPECT_EQ(dtype_name(tensor.dtype), name);
    const Moments m = moments_of(files, tensor, 1 << 20);
    EXPECT_NEAR(m.mean, 0, 0.001);
    EXPECT_NEAR(m.deviation, 0.02, 0.004);
  }
}

TEST(Dummy, RepeatsItselfExactlyAndDiffersBetweenTensors) {
  const ModelFiles a = open_dummy_model(shipped("TinyLlama-1.1B"), "q8_0");
  const ModelFiles b = open_dummy_model(shipped("TinyLlama-1.1B"), "q8_0");
  const auto bytes = [](const ModelFiles& files, const char* name) {
    const TensorBytes data(*files.checkpoint, files.checkpoint->get(name));
    return std::vector<std::byte>(data.bytes.begin(), data.bytes.begin() + 4096);
  };
  EXPECT_EQ(bytes(a, "lm_head.weight"), bytes(b, "lm_head.weight"));
  EXPECT_NE(bytes(a, "lm_head.weight"), bytes(a, "model.embed_tokens.weight"));
}

TEST(Dummy, SaysWhatItNeeds) {
  const auto error_of = [](const std::string& path, const std::string& dtype) -> std::string {
    try {
      open_dummy_model(path, dtype);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of("/nowhere", "auto").find("need a folder with a config.json"), std::string::npos);
  EXPECT_NE(error_of(shipped("TinyLlama-1.1B"), "int5").find("--dtype int5"), std::string::npos);
}

}  // namespace
}  // namespace ingot
