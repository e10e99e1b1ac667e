#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attention_rig.h"
#include "conformance.h"
#include "harness.h"
#include "reference.h"

// Attention of every device against the reference in double precision.
namespace ingot::test {
namespace {

struct AttentionSetup {
  int64_t head_size, block_size, group, kv_heads, window, rope_dims;
  KvType dtype;
  bool qk_norm;
  float spread = 1.0f;
};

class AttentionConformance : public Conformance {
 protected:
  struct Results {
    std::vector<std::vector<float>> outputs;  // of each step
    std::vector<float> cache[2];              // K and V
  };

  static double rounding(KvType type, double f32, double f16, double bf16, double int8) {
    return type == KvType::f32 ? f32 : type == KvType::f16 ? f16 : type == KvType::bf16 ? bf16 : int8;
  }

  static AttentionCase config_of(const AttentionSetup& setup, bool exact) {
    AttentionCase config;
    config.shape.heads = setup.group * setup.kv_heads;
    config.shape.kv_heads = setup.kv_heads;
    config.shape.head_size = setup.head_size;
    config.shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(setup.head_size)));
    config.shape.window = setup.window;
    config.shape.rope_dims = exact ? 0 : setup.rope_dims;
    config.kv_dtype = setup.dtype;
    config.block_size = setup.block_size;
    config.num_blocks = 768 / setup.block_size;
    config.qk_norm = setup.qk_norm && !exact;
    config.spread = setup.spread;
    config.seed = static_cast<unsigned>(setup.head_size * 131 + setup.block_size * 7 + setup.group);
    return config;
  }

  // A prefill, then a mixed step of decode rows and prefill chunks, then decode alone. The first sequence comes with a
  // past and crosses the end of a split (256 keys), the fourth that of a span (64).
  static Results run_steps(Backend& backend, const AttentionCase& config, bool exact) {
    const auto sequences = make_sequences(config, {266, 70, 9, 70, 1}, exact);
    const std::vector<std::vector<AttentionRig::Piece>> steps = {
        {{0, 230, 33, false}, {1, 0, 33, false}, {2, 0, 8, false}},
        {{0, 263, 1, true}, {2, 8, 1, true}, {1, 33, 30, false}, {3, 0, 67, false}, {4, 0, 1, false}},
        {{0, 264, 1, true}, {3, 67, 1, true}, {1, 63, 7, false}},
        {{0, 265, 1, true}, {3, 68, 1, true}},
        {{3, 69, 1, true}},
    };
    AttentionRig rig(backend, config);
    rig.write_cache(sequences[0], 230);
    Results results;
    for (const auto& step : steps) results.outputs.push_back(rig.step(sequences, step));
    for (bool value : {false, true}) results.cache[value] = rig.cache(value);
    return results;
  }

  // The steps compared with the reference row by row.
  void check(const AttentionSetup& setup, bool exact) {
    const AttentionCase config = config_of(setup, exact);
    const std::string what = "head " + std::to_string(setup.head_size) + " block " + std::to_string(setup.block_size) +
                             " group " + std::to_string(setup.group) + " window " + std::to_string(setup.window) + " " +
                             std::string(kv_type_name(setup.dtype)) + (exact ? " exact" : "");
    // When rotation makes K inexact, a device may round the odd element to the other neighbour of the
    // cache's type, for int8 a 127th of the largest in its row.
    double limit = 1e-5;
    if (!exact) limit = rounding(setup.dtype, 2e-5, 1e-3, 8e-3, 4e-2);
    // A key that was rounded to 16 bits before the cache rounds it again may land on the other neighbour.
    const bool rounds_twice = device_->info().activation != DType::f32 && setup.dtype == KvType::bf16;
    if (!exact && rounds_twice) limit *= 2;
    limit = tolerance(*device_, limit) * setup.spread;
    if (setup.spread > 1) limit *= setup.spread * setup.spread;  // scores grow with the square
    if (setup.spread < 1) limit /= 2;                            // all keys count alike: results are small
    // The reference is slow and the same for every device.
    static std::map<std::string, Results> references;
    const std::string key =
        what + fmt::format(" {} {} {} {}", setup.kv_heads, setup.rope_dims, setup.qk_norm, setup.spread);
    if (!references.contains(key)) references[key] = run_steps(*reference_, config, exact);
    const Results& want = references[key];
    const Results got = run_steps(*device_, config, exact);
    for (size_t i = 0; i < got.outputs.size(); ++i)
      expect_near(got.outputs[i], want.outputs[i], limit, what + " step " + std::to_string(i));
    const double cache_limit = rounding(setup.dtype, 2e-6, 1.1e-3, 8e-3, 8e-2);
    for (bool value : {false, true})
      // Of the numbers that bf16 knows, f16 rounds the very small.
      expect_near(got.cache[value], want.cache[value],
                  !exact                                     ? tolerance(*device_, cache_limit)
                  : device_->info().activation == DType::f16 ? 6e-8
                                                             : 0.0,
                  what + (value ? " V" : " K"));
    SetUp();
  }
};

// Every head size, block size, cache type, kind of window, rotation and norm, in pairs.
TEST_P(AttentionConformance, Shapes) {
  check({64, 16, 3, 2, 0, 64, KvType::f16, false}, false);
  if (metal() && kSanitized) return;
  check({128, 32, 2, 2, 100, 128, KvType::f16, true}, false);
  check({256, 8, 8, 1, 257, 256, KvType::bf16, false}, true);
}
TEST_P(AttentionConformance, OtherHeads) {
  check({80, 8, 7, 1, 0, 80, KvType::f32, false}, false);
  if (metal() && kSanitized) return;
  check({40, 16, 20, 1, 1, 40, KvType::f16, false}, true);
  check({8, 64, 6, 1, 2, 8, KvType::bf16, false}, false);
  check({32, 16, 3, 1, 5000, 32, KvType::f16, true}, false);
  check({72, 16, 2, 1, 50, 40, KvType::f32, true}, false);
}
TEST_P(AttentionConformance, Groups) {
  for (int64_t group : {1, 5, 8, 20}) check({64, 16, group, 1, 0, 64, KvType::f16, false}, false);
}
TEST_P(AttentionConformance, Int8) {
  check({64, 8, 5, 1, 15, 64, KvType::int8, false}, true);
  if (metal() && kSanitized) return;
  check({128, 16, 4, 2, 0, 64, KvType::int8, true}, false);
  check({96, 32, 1, 2, 64, 96, KvType::int8, false}, true);
  // Rows of any size: the scales must not leave what the products are made of.
  for (float spread : {0x1p-10f, 30.0f}) check({64, 64, 3, 1, 0, 64, KvType::int8, false, spread}, true);
}

// What the rounding costs: rows of random numbers, attended to with and without it.
TEST_P(AttentionConformance, Int8RoundingIsSmall) {
  for (int64_t head_size : few<int64_t>(1, {64, 128})) {
    const AttentionSetup setup{head_size, 64, 3, 2, 0, head_size, KvType::int8, false};
    AttentionCase exact = config_of(setup, false);
    exact.kv_dtype = KvType::f32;
    const Results want = run_steps(*reference_, exact, false);
    const Results got = run_steps(*device_, config_of(setup, false), false);
    double squares = 0, all = 0;
    for (size_t i = 0; i < want.outputs.size(); ++i) {
      expect_near(got.outputs[i], want.outputs[i], 0.04, "int8 against f32");
      for (size_t j = 0; j < want.outputs[i].size(); ++j) {
        squares += std::pow(got.outputs[i][j] - want.outputs[i][j], 2);
        all += std::pow(want.outputs[i][j], 2);
      }
    }
    EXPECT_LT(std::sqrt(squares / all), 0.012);
    EXPECT_GT(std::sqrt(squares / all), 0.002) << "nothing was rounded";
    SetUp();
  }
}

// Scores in the hundreds: the largest must be taken out before exponentials, inside tiles and when splits are merged.
TEST_P(AttentionConformance, LargeScores) { check({64, 16, 3, 1, 0, 64, KvType::f32, false, 8.0f}, true); }

INSTANTIATE_TEST_SUITE_P(Devices, AttentionConformance, testing::ValuesIn(attention_devices()),
                         [](const auto& info) { return device_name(info.param); });

// The products of them, where no kernel has to be compiled.
class AttentionProducts : public AttentionConformance {};

TEST_P(AttentionProducts, HeadSizes) {
  for (int64_t head_size : {128, 32, 64, 80, 96, 256, 8, 40}) {
    check({head_size, 16, 3, 2, 0, head_size, KvType::f16, false}, false);
    check({head_size, 16, 3, 2, 0, head_size, KvType::f16, false}, true);
  }
}

TEST_P(AttentionProducts, BlockSizes) {
  for (int64_t block_size : {8, 16, 32, 64}) {
    for (int64_t head_size : {80, 64}) check({head_size, block_size, 2, 1, 0, head_size, KvType::bf16, false}, true);
    check({64, block_size, 4, 1, 0, 64, KvType::f16, false}, true);
  }
}

TEST_P(AttentionProducts, Groups) {
  for (int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 20}) check({64, 16, group, 2, 0, 64, KvType::f16, false}, true);
}

TEST_P(AttentionProducts, CacheTypes) {
  for (KvType dtype : {KvType::f32, KvType::f16, KvType::bf16, KvType::int8})
    for (int64_t head_size : {128, 32, 72}) {
      check({head_size, 16, 3, 1, 0, head_size, dtype, false}, true);
      check({head_size, 8, 1, 2, 0, head_size, dtype, false}, false);
    }
}

TEST_P(AttentionProducts, Int8) {
  for (int64_t head_size : {40, 8, 64, 80, 256}) check({head_size, 16, 3, 2, 0, head_size, KvType::int8, false}, true);
  for (int64_t block_size : {8, 32, 64}) check({64, block_size, 4, 1, 0, 64, KvType::int8, false}, true);
  for (int64_t window : {100, 1, 15, 257}) check({64, 16, 9, 1, window, 64, KvType::int8, false}, true);
}

TEST_P(AttentionProducts, Windows) {
  for (int64_t window : {15, 1, 2, 64, 100, 257, 5000})
    for (int64_t block_size : {32, 8}) check({64, block_size, 3, 1, window, 64, KvType::f16, false}, true);
}

TEST_P(AttentionProducts, NormAndPartialRotation) {
  check({64, 16, 3, 1, 0, 32, KvType::f32, false}, false);
  check({64, 16, 3, 1, 0, 64, KvType::f32, true}, false);
  check({80, 16, 1, 2, 50, 40, KvType::f32, true}, false);
  check({128, 32, 4, 2, 0, 128, KvType::f32, true}, false);
}

std::vector<DeviceCase> product_devices() {
  std::vector<DeviceCase> list = attention_devices();
  if (!soak()) std::erase_if(list, [](const DeviceCase& device) { return device.name.starts_with("metal"); });
  return list;
}
INSTANTIATE_TEST_SUITE_P(Devices, AttentionProducts, testing::ValuesIn(product_devices()),
                         [](const auto& info) { return device_name(info.param); });

}  // namespace
}  // namespace ingot::test
