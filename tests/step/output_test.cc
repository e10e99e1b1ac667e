#include "step/output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ingot {
namespace {

constexpr int32_t kRows = 3, kTop = 2, kLogitsRows = 2;
constexpr int64_t kVocab = 5;

TEST(Output, ArraysLieBehindEachOther) {
  const OutputLayout layout = OutputLayout::of(kRows, kTop, kLogitsRows, kVocab, 2, 3);
  const auto parts = layout.written(kRows, kLogitsRows, 2);
  size_t end = 0;
  for (const OutputLayout::Part& part : parts) {
    EXPECT_EQ(part.offset % 64, 0u);
    EXPECT_GE(part.offset, end);
    end = part.offset + part.bytes;
  }
  EXPECT_LE(end, layout.bytes);
  EXPECT_EQ(parts[0].bytes, kRows * 4u);
  EXPECT_EQ(parts[3].bytes, kRows * kTop * 4u);
  EXPECT_EQ(parts[5].bytes, kLogitsRows * kVocab * 4u);
  EXPECT_EQ(parts[6].bytes, 2 * 3 * 4u);
  for (const OutputLayout::Part& part : layout.written(0, 0, 0)) EXPECT_EQ(part.bytes, 0u);
}

TEST(Output, EachRowGetsWhatItWanted) {
  const OutputLayout layout = OutputLayout::of(4, kTop, kLogitsRows, kVocab);
  std::vector<std::byte> memory(layout.bytes);
  const OutputArrays out(layout, memory.data());
  for (int32_t r = 0; r < 4; ++r) {
    out.tokens[r] = 10 + r;
    out.logprobs[r] = -1.0f - static_cast<float>(r);
    out.ranks[r] = 1 + r;
    for (int32_t i = 0; i < kTop; ++i) {
      out.top_ids[r * kTop + i] = 100 * r + i;
      out.top_values[r * kTop + i] = 0.5f * static_cast<float>(i);
    }
  }
  for (int i = 0; i < kLogitsRows * kVocab; ++i) out.logits[i] = static_cast<float>(i);
  const std::vector<RowOutput> wanted = {{.kind = RowOutput::Kind::full_logits},
                                         {.kind = RowOutput::Kind::token},
                                         {.kind = RowOutput::Kind::logprobs, .top = 1},
                                         {.kind = RowOutput::Kind::full_logits}};
  const std::vector<RowResult> rows = read_rows(layout, memory, wanted);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].logits, (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows[0].token, -1);
  EXPECT_EQ(rows[1].token, 11);
  EXPECT_TRUE(rows[1].top.empty());
  EXPECT_EQ(rows[1].rank, 0);
  EXPECT_EQ(rows[2].token, 12);
  EXPECT_EQ(rows[2].logprob, -3.0f);
  EXPECT_EQ(rows[2].rank, 3);
  ASSERT_EQ(rows[2].top.size(), 1u);
  EXPECT_EQ(rows[2].top[0].token, 200);
  EXPECT_EQ(rows[3].logits, (std::vector<float>{5, 6, 7, 8, 9}));
}

TEST(Output, PooledVectors) {
  const OutputLayout layout = OutputLayout::of(1, 1, 1, kVocab, 2, 3);
  std::vector<std::byte> memory(layout.bytes);
  for (int i = 0; i < 6; ++i) reinterpret_cast<float*>(memory.data() + layout.pooled)[i] = static_cast<float>(i);
  EXPECT_EQ(read_pooled(layout, memory, 2), (std::vector<std::vector<float>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_TRUE(read_pooled(layout, memory, 0).empty());
}

}  // namespace
}  // namespace ingot
