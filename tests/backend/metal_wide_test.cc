// How products by warpgroups are cut: numbers only, nothing runs.
#include <gtest/gtest.h>

#include "backend/metal/linear/wide.h"

namespace ingot::metal {
namespace {

constexpr unsigned kCores = 132;
constexpr int64_t kThreadgroupBytes = 227 << 10;

LinearShape shape_of(DType format, int64_t rows, int64_t outputs, int64_t cols) {
  LinearShape shape;
  shape.format = shape.format_up = format;
  shape.in = is_block_quantized(format) ? DType::f16 : format;
  shape.rows = rows;
  shape.outputs = shape.out_stride = outputs;
  shape.cols = cols;
  shape.out = DType::f32;
  shape.threadgroup_bytes = kThreadgroupBytes;
  return shape;
}

constexpr DType kBlocks[] = {DType::q2_k, DType::q3_k, DType::q4_0, DType::q4_1, DType::q4_k,
                             DType::q5_0, DType::q5_k, DType::q6_k, DType::q8_0, DType::iq4_nl};

TEST(MetalWide, TakesManyRowsWhereThereAreWarpgroups) {
  const Wide wide(kCores), none(0);
  EXPECT_TRUE(wide.takes(shape_of(DType::bf16, 65, 5120, 5120)));
  EXPECT_FALSE(wide.takes(shape_of(DType::bf16, 64, 5120, 5120)));
  EXPECT_FALSE(none.takes(shape_of(DType::bf16, 65, 5120, 5120)));
  EXPECT_FALSE(wide.takes(shape_of(DType::bf16, 65, 5120, 5152)));  // half a turn would be left
  EXPECT_TRUE(wide.takes(shape_of(DType::q4_k, 17, 5120, 5120)));
  EXPECT_FALSE(wide.takes(shape_of(DType::q4_k, 16, 5120, 5120)));
  EXPECT_TRUE(wide.takes(shape_of(DType::q8_0, 9, 65536, 5120)));  // 512 tiles
  EXPECT_FALSE(wide.takes(shape_of(DType::q8_0, 8, 65536, 5120)));
  EXPECT_FALSE(wide.takes(shape_of(DType::q4_k, 16, 65536, 5120)));  // simdgroups share x
  EXPECT_FALSE(wide.takes(shape_of(DType::q4_0, 17, 5120, 5120 + 32)));
  LinearShape experts = shape_of(DType::bf16, 256, 5120, 5120);
  experts.experts = 8;
  EXPECT_FALSE(wide.takes(experts));
  LinearShape small = shape_of(DType::bf16, 256, 5120, 5120);
  small.threadgroup_bytes = 99 << 10;
  EXPECT_FALSE(wide.takes(small));
  LinearShape mixed = shape_of(DType::q4_k, 256, 5120, 5120);
  mixed.activation = ActivationKind::silu;
  mixed.format_up = DType::q6_k;
  EXPECT_FALSE(wide.takes(mixed));
}

TEST(MetalWide, RingsFitForEveryFormatAndHaveRoomToBringAhead) {
  const Wide wide(kCores);
  for (const DType format : {DType::bf16, DType::f16, DType::q2_k, DType::q3_k, DType::q4_0, DType::q4_1, DType::q4_k,
                             DType::q5_0, DType::q5_k, DType::q6_k, DType::q8_0, DType::iq4_nl}) {
    for (const int rows : {16, 32, 64, 128}) {
      const WidePlan plan = wide.plan(shape_of(format, rows, 4096, 4096), {.tile_rows = rows});
      EXPECT_LE(plan.product.threadgroup_bytes, static_cast<size_t>(kThreadgroupBytes)) << dtype_name(format);
      EXPECT_GE(plan.product.params.wide_stages, 3u) << dtype_name(format) << " " << rows;
      // The thread that brings x brings weights behind it: a stage's turns must fit, or both would wait for ever.
      EXPECT_GE(plan.product.params.wide_turns, 5u);
    }
  }
}

// The kernel knows a stage of blocks by its format: codes, high bits, scales.
TEST(MetalWide, AStageOfBlocksIsWhatThePlanesOf256ColumnsAre) {
  for (const DType format : kBlocks) {
    const PackedPlanes planes = packed_planes(format, kSuperColumns);
    const BlockLayout& layout = dtype_info(format).layout;
    EXPECT_EQ(planes.high_offset, static_cast<uint32_t>(kSuperColumns * layout.low_bits)) << dtype_name(format);
    EXPECT_EQ(planes.meta_offset - planes.high_offset, static_cast<uint32_t>(kSuperColumns * layout.high_bits));
    EXPECT_EQ((planes.panel_bytes - planes.meta_offset) % 16, 0u) << dtype_name(format);
    // A thread takes the same piece of every few panels.
    EXPECT_EQ(128 % (planes.high_offset / 16), 0u) << dtype_name(format);
    if (layout.high_bits > 0) {
      EXPECT_EQ(128 % ((planes.meta_offset - planes.high_offset) / 16), 0u) << dtype_name(format);
    }
  }
}

TEST(MetalWide, SplitsWhereTilesAreTooFew) {
  const Wide wide(kCores);
  EXPECT_TRUE(wide.variant(shape_of(DType::bf16, 128, 5120, 32768)).split);    // 40 tiles
  EXPECT_FALSE(wide.variant(shape_of(DType::bf16, 2048, 5120, 32768)).split);  // 640
  LinearShape gated = shape_of(DType::bf16, 128, 4096, 5120);
  gated.activation = ActivationKind::silu;
  EXPECT_FALSE(wide.variant(gated).split);

  const LinearShape shape = shape_of(DType::bf16, 130, 5000, 5120);
  const WidePlan plan = wide.plan(shape, {.tile_rows = 128, .split = true});
  EXPECT_EQ(plan.product.params.row_tiles, 2u);
  EXPECT_EQ(plan.product.params.output_groups, 40u);
  EXPECT_EQ(plan.product.groups, kCores);
  EXPECT_EQ(plan.product.partial_bytes, size_t{2} * 8 * 128 * 5000 * 4);
  EXPECT_EQ(plan.input_bytes, size_t{2} * 128 * 5120 * 2);
  EXPECT_EQ(plan.product.add_row_groups, 130u);
}

// Two of few rows share a multiprocessor, where each still has room to bring ahead.
TEST(MetalWide, TwoAMultiprocessorWhereRowsAreFewAndTilesMany) {
  const Wide wide(kCores);
  for (const DType format : kBlocks) {
    for (const int64_t rows : {9, 16, 17, 32, 33}) {
      const LinearShape shape = shape_of(format, rows, 65536, 5120);
      const WideVariant variant = wide.variant(shape);
      const WidePlan plan = wide.plan(shape, variant);
      EXPECT_EQ(plan.product.groups, variant.twice ? 2 * kCores : kCores) << dtype_name(format) << " " << rows;
      if (!variant.twice) continue;
      EXPECT_LE(variant.tile_rows, 32);
      EXPECT_LE(2 * (plan.product.threadgroup_bytes + 1024), size_t{228} << 10);
      EXPECT_GE(plan.product.params.wide_stages, 4u);
    }
  }
  EXPECT_TRUE(wide.variant(shape_of(DType::q4_k, 16, 65536, 5120)).twice);
  EXPECT_FALSE(wide.variant(shape_of(DType::q8_0, 16, 65536, 5120)).twice);
  EXPECT_FALSE(wide.variant(shape_of(DType::q4_k, 32, 5120, 5120)).twice);
}

// A rehearsal takes powers of two and the most rows; steps of any number must find the memory they need.
TEST(MetalWide, TheMostRowsReserveWhatFewerNeed) {
  const Wide wide(kCores);
  for (const int64_t outputs : {128, 1000, 4096, 5120, 6144, 65536}) {
    size_t reserved = 0, needed = 0;
    for (int64_t rows = 1; rows <= 2048; ++rows) {
      const LinearShape shape = shape_of(DType::bf16, rows, outputs, 1024);
      if (!wide.takes(shape)) continue;
      needed = std::max(needed, wide.plan(shape, wide.variant(shape)).product.partial_bytes);
      if (rows == 128 || rows == 2048) reserved = std::max(reserved, wide.most_partial_bytes(shape));
    }
    EXPECT_GE(reserved, needed) << outputs;
    EXPECT_LE(needed, wide.work_bytes(0, 0)) << outputs;
  }
}

}  // namespace
}  // namespace ingot::metal
