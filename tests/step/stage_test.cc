#include "step/stage.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "ingot/step_builder.h"
#include "step/validate.h"

namespace ingot {
namespace {

constexpr int64_t kStageVocab = 70;  // three words of a mask
constexpr int64_t kStageBlock = 4;

Step sampled_step() {
  StepBuilder builder(kStageBlock);
  const std::vector<int32_t> blocks = {3, 1}, ids = {10, 11, 12};
  builder.add(ids, 3, blocks);
  SamplingParams params;
  params.top_k = -1;
  params.stop_token_ids = {8, 9};
  params.logit_bias = {{5, 1.5f}};
  params.allowed_token_ids = {30, 20, 30};
  params.bad_words = {{1, 2}, {3}};
  builder.sample(1, params, 2);
  builder.sample(2, {}, -1, {.kind = RowOutput::Kind::full_logits});
  builder.reset_sampler({.slot = 2, .prompt_ids = {40, 41}, .output_ids = {42}});
  builder.step().block_saves = {{3, 7}};
  builder.step().block_loads = {{8, 2}, {9, 4}};
  builder.step().block_copies = {{5, 6}};
  builder.step().grammar_mask = {1, 2, 3, 4, 5, 6};
  return builder.finish();
}

template <typename T>
std::vector<T> read(const std::vector<std::byte>& memory, size_t offset, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), memory.data() + offset, count * sizeof(T));
  return values;
}

// A mask is staged where it bars something: rows without a grammar stay what they are alone.
TEST(Stage, RowsWithoutAMaskHaveNone) {
  StepBuilder builder(kStageBlock);
  const std::vector<int32_t> blocks = {0, 1}, ids = {10, 11, 12};
  const std::vector<uint32_t> mask = {7, 8, 9};
  builder.add(ids, 0, blocks);
  builder.sample(0, {});
  builder.sample(1, {}, -1, {}, mask);
  builder.sample(2, {}, -1, {.kind = RowOutput::Kind::logprobs});
  std::vector<std::byte> memory(4096);
  const Step& step = builder.finish();
  EXPECT_EQ(step.grammar_mask, (std::vector<uint32_t>{~0u, ~0u, ~0u, 7, 8, 9, ~0u, ~0u, ~0u}));
  const StagedStep staged = stage_step(step, kStageVocab, kStageBlock, 0, memory);
  const auto rows = read<StagedSampling>(memory, staged.sampling, 3);
  EXPECT_EQ(rows[0].mask_offset, -1);
  EXPECT_EQ(rows[2].mask_offset, -1);
  ASSERT_GE(rows[1].mask_offset, 0);
  EXPECT_EQ(read<uint32_t>(memory, staged.pool + static_cast<size_t>(rows[1].mask_offset) * 4, 3), mask);
}

TEST(Stage, EverythingIsWhereItSays) {
  std::vector<std::byte> memory(4096);
  const StagedStep staged = stage_step(sampled_step(), kStageVocab, kStageBlock, 1, memory);
  EXPECT_EQ(staged.ring, 1);
  EXPECT_EQ(staged.tokens, 3);
  EXPECT_EQ(staged.samples, 2);
  EXPECT_EQ(staged.copies, 1);
  EXPECT_EQ(staged.resets, 1);
  EXPECT_EQ(read<int32_t>(memory, staged.token_ids, 3), (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(read<int64_t>(memory, staged.slots, 3), (std::vector<int64_t>{15, 4, 5}));
  EXPECT_EQ(read<int32_t>(memory, staged.block_copies, 2), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(staged.saves, 1);
  EXPECT_EQ(staged.loads, 2);
  EXPECT_EQ(read<int32_t>(memory, staged.block_saves, 2), (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(read<int32_t>(memory, staged.block_loads, 4), (std::vector<int32_t>{8, 2, 9, 4}));
  EXPECT_EQ(staged.saves_first, 1) << "a row writes into block 3";
  EXPECT_EQ(staged.loads_first, 0);
  EXPECT_EQ(read<int32_t>(memory, staged.sample_rows, 2), (std::vector<int32_t>{1, 2}));

  const auto rows = read<StagedSampling>(memory, staged.sampling, 2);
  const auto list = [&](int32_t offset, int32_t count) {
    return read<int32_t>(memory, staged.pool + static_cast<size_t>(offset) * 4, static_cast<size_t>(count));
  };
  EXPECT_EQ(rows[0].top_k, 0);
  EXPECT_EQ(rows[0].slot, 2);
  EXPECT_EQ(rows[0].position, 5);  // the drawn token comes after the row's own
  EXPECT_EQ(list(rows[0].stop_offset, rows[0].stop_count), (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(list(rows[0].bias_offset, 2), (std::vector<int32_t>{5, std::bit_cast<int32_t>(1.5f)}));
  EXPECT_EQ(list(rows[0].allowed_offset, rows[0].allowed_count), (std::vector<int32_t>{20, 30}));
  EXPECT_EQ(list(rows[0].bad_offset, 5), (std::vector<int32_t>{2, 1, 2, 1, 3}));
  EXPECT_EQ(list(rows[0].mask_offset, 3), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(rows[0].logits_row, -1);
  EXPECT_EQ(rows[1].mask_offset, -1);  // it draws nothing
  EXPECT_EQ(rows[1].logits_row, 0);
  const auto reset = read<int32_t>(memory, staged.reset_words, 4);
  EXPECT_EQ(reset[0], 2);
  EXPECT_EQ(reset[2], 2);
  EXPECT_EQ(reset[3], 1);
  EXPECT_EQ(list(reset[1], 3), (std::vector<int32_t>{40, 41, 42}));
}

// Saves and loads that no row depends on, and that change nothing which one reads, may run beside the rows.
TEST(Stage, MovesThatRowsDependOnComeFirst) {
  StepBuilder builder(kStageBlock);
  const std::vector<int32_t> blocks = {3, 7, 1}, ids = {10, 11};
  builder.add(ids, 9, blocks);  // reads all three, writes into 1
  Step& step = builder.step();
  step.blocks_to_zero = {12};
  step.block_copies = {{13, 14}};
  step.block_saves = {{3, 0}, {1, 1}, {2, 2}, {12, 3}, {14, 4}, {13, 5}, {20, 6}, {21, 9}};
  step.block_loads = {{7, 2}, {8, 7}, {9, 13}, {10, 12}, {11, 22}};
  std::vector<std::byte> memory(4096);
  const StagedStep staged = stage_step(builder.finish(), kStageVocab, kStageBlock, 0, memory);
  const auto pairs = [&](size_t offset, int32_t count) {
    std::vector<std::pair<int32_t, int32_t>> list;
    const auto flat = read<int32_t>(memory, offset, 2 * static_cast<size_t>(count));
    for (size_t i = 0; i < flat.size(); i += 2) list.emplace_back(flat[i], flat[i + 1]);
    return list;
  };
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(staged.loads_first, 3);
  EXPECT_EQ(pairs(staged.block_loads, 5), (Pairs{{8, 7}, {9, 13}, {10, 12}, {7, 2}, {11, 22}}));
  // Block 13 is loaded before it is copied; host block 9 is read by that load.
  EXPECT_EQ(staged.saves_first, 5);
  EXPECT_EQ(pairs(staged.block_saves, 8), (Pairs{{1, 1}, {12, 3}, {14, 4}, {13, 5}, {21, 9}, {3, 0}, {2, 2}, {20, 6}}));
}

TEST(Stage, WhatDoesNotFitIsRefused) {
  std::vector<std::byte> memory(4096);
  const size_t need = stage_step(sampled_step(), kStageVocab, kStageBlock, 0, memory).bytes;
  EXPECT_NO_THROW(stage_step(sampled_step(), kStageVocab, kStageBlock, 0, std::span(memory).first(need)));
  EXPECT_THROW(stage_step(sampled_step(), kStageVocab, kStageBlock, 0, std::span(memory).first(need - 1)), StepError);
}

// The bytes planned for the limits hold a step that reaches them all.
TEST(Stage, ThePlanHoldsTheLargestStep) {
  const EngineLimits limits{.max_step_tokens = 3,
                            .max_seqs = 1,
                            .max_sample_rows = 2,
                            .max_model_len = 6,
                            .num_blocks = 2,
                            .block_size = kStageBlock,
                            .vocab = kStageVocab,
                            .sampler_slots = 1,
                            .max_list_words = 32};
  std::vector<std::byte> memory(stage_bytes(limits));
  EXPECT_NO_THROW(stage_step(sampled_step(), kStageVocab, kStageBlock, 0, memory));
}

}  // namespace
}  // namespace ingot
