#include "ingot/step_builder.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot {
namespace {

TEST(StepBuilder, CountsTheTotalsOfAMixedStep) {
  StepBuilder builder(4);
  const std::vector<int32_t> a = {3, 1, 5}, b = {7, 8, 9}, c = {0, 2, 4};
  const std::vector<int32_t> chunk = {10, 11, 12, 13, 14};
  const int32_t drawn = -1, known = 42;
  EXPECT_TRUE(builder.empty());
  builder.add({&drawn, 1}, 6, a);
  builder.add({&known, 1}, 11, b);
  EXPECT_EQ(builder.add(chunk, 3, c), 2);
  builder.sample(6, {.temperature = 0}, 1, {.kind = RowOutput::Kind::logprobs, .top = 2});
  const Step& step = builder.finish();
  EXPECT_EQ(step.kind, StepKind::mixed);
  EXPECT_EQ(step.num_scheduled_tokens, 7);
  EXPECT_EQ(step.num_seqs_active, 3);
  EXPECT_EQ(step.num_decode_tokens, 2);
  EXPECT_EQ(step.max_query_len, 5);
  EXPECT_EQ(step.max_seq_len, 12);
  EXPECT_EQ(step.token_ids, (std::vector<int32_t>{-1, 42, 10, 11, 12, 13, 14}));
  EXPECT_EQ(step.positions, (std::vector<int32_t>{6, 11, 3, 4, 5, 6, 7}));
  EXPECT_EQ(step.slot_mapping, (std::vector<int64_t>{6, 39, 3, 8, 9, 10, 11}));
  EXPECT_EQ(step.query_start_loc, (std::vector<int32_t>{0, 1, 2, 7}));
  EXPECT_EQ(step.seq_lens, (std::vector<int32_t>{7, 12, 8}));
  EXPECT_EQ(step.sample_rows, (std::vector<int32_t>{6}));
  EXPECT_EQ(step.sampler_slot, (std::vector<int32_t>{1}));
  EXPECT_EQ(step.output[0].top, 2);
}

// A sequence may hold blocks for tokens to come; the step names those that it fills.
TEST(StepBuilder, NamesTheBlocksThatAreFilled) {
  StepBuilder builder(4);
  const std::vector<int32_t> a = {3, 1, 5}, b = {7, 8, 9};
  const std::vector<int32_t> ids = {1, 2};
  builder.add(ids, 3, a);
  builder.add(ids, 0, b);
  const Step& step = builder.finish();
  EXPECT_EQ(step.max_blocks, 2);
  EXPECT_EQ(step.block_table, (std::vector<int32_t>{3, 1, 7, -1}));
}

TEST(StepBuilder, TellsTheKindFromTheRows) {
  StepBuilder builder(4);
  const std::vector<int32_t> blocks = {3}, ids = {1, 2};
  builder.add(std::span(ids).first(1), 0, blocks);
  EXPECT_EQ(builder.finish().kind, StepKind::decode);
  builder.clear();
  builder.add(ids, 0, blocks);
  builder.add(std::span(ids).first(1), 2, blocks);  // behind rows of a prompt one row is prefill too
  EXPECT_EQ(builder.finish().kind, StepKind::prefill);
  EXPECT_EQ(builder.finish().num_decode_tokens, 0);
}

}  // namespace
}  // namespace ingot
