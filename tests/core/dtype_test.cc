#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/half.h"

namespace ingot {
namespace {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType type = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(type)), type);
  }
  EXPECT_EQ(parse_dtype("q9_9"), std::nullopt);
}

TEST(DType, BytesFollowTheBlock) {
  EXPECT_EQ(dtype_bytes(DType::f16, 10), 20u);
  EXPECT_EQ(dtype_bytes(DType::q4_1, 64), 40u);
  EXPECT_EQ(dtype_bytes(DType::q6_k, 512), 420u);
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      EXPECT_EQ(f32_to_f16(f), h);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), f32_to_f16(1.0f));              // tie goes to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1.8p-10f), f32_to_f16(1.0f + 0x1p-9f));  // tie goes up to even
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);                               // overflow becomes infinity
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);  // half of the smallest subnormal, tie to even
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 1);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), f32_to_bf16(1.0f));
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.8p-7f), f32_to_bf16(1.0f + 0x1p-6f));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace ingot
