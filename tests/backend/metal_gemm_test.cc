#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/metal/linear/gemm.h"

namespace ingot::metal {
namespace {

// A library multiplies numbers of 16 bits; all else goes to the kernels.
TEST(MetalGemm, TakesNumbersOfSixteenBits) {
  const char* library = std::getenv("SOFTMETAL_GEMM");
  if (library == nullptr || std::string(library) != "all") GTEST_SKIP() << "no library stands in here";
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  const Gemm gemm(NS::TransferPtr(MTL::CreateSystemDefaultDevice()));
  ASSERT_FALSE(gemm.name().empty());
  const auto takes = [&](auto change) {
    LinearShape shape{.rows = 21, .cols = 96, .outputs = 48, .out_stride = 64};
    change(shape);
    return gemm.takes(shape);
  };
  EXPECT_TRUE(takes([](LinearShape&) {}));
  EXPECT_TRUE(takes([](LinearShape& s) { s.outputs = 37, s.out_stride = 51, s.cols = 100; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.format = DType::f32; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.format = DType::bf16; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.experts = 4; }));
}

}  // namespace
}  // namespace ingot::metal
