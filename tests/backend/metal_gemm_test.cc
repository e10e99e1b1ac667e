#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/metal/linear/gemm.h"

namespace ingot::metal {
namespace {

// What a library multiplies must begin at multiples of 16 bytes; all else goes to the kernels.
TEST(MetalGemm, TakesWhatIsAligned) {
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
  EXPECT_TRUE(takes([](LinearShape& s) { s.outputs = 8; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.outputs = 36; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.out_stride = 52; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.cols = 100; }));
  EXPECT_FALSE(takes([](LinearShape& s) { s.experts = 4; }));
}

}  // namespace
}  // namespace ingot::metal
