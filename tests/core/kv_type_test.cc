#include "core/kv_type.h"

#include <gtest/gtest.h>

#include <string>

namespace ingot {
namespace {

TEST(KvType, NamesRoundTripAndAreListed) {
  for (int i = 0; i < kNumKvTypes; ++i) {
    const KvType type = static_cast<KvType>(i);
    EXPECT_EQ(parse_kv_type(kv_type_name(type)), type);
    EXPECT_NE(kKvTypeNames.find(kv_type_name(type)), std::string_view::npos) << kv_type_name(type);
  }
  for (const char* name : {"", "?", "fp8", "q8_0", "F16"}) EXPECT_EQ(parse_kv_type(name), std::nullopt) << name;
}

TEST(KvType, OnlyIntegersHaveScales) {
  EXPECT_EQ(kv_element_bytes(KvType::f32), 4u);
  EXPECT_EQ(kv_element_bytes(KvType::f16), 2u);
  EXPECT_EQ(kv_element_bytes(KvType::bf16), 2u);
  EXPECT_EQ(kv_element_bytes(KvType::int8), 1u);
  EXPECT_EQ(kv_scale_bytes(KvType::f16), 0u);
  EXPECT_EQ(kv_scale_bytes(KvType::int8), 4u);
}

}  // namespace
}  // namespace ingot
