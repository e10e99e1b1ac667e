#include "step/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "ingot/step_builder.h"

namespace ingot {
namespace {

EngineLimits small_limits() {
  return {.max_step_tokens = 32,
          .max_seqs = 4,
          .max_sample_rows = 8,
          .max_logits_rows = 2,
          .max_top = 5,
          .max_model_len = 64,
          .num_blocks = 16,
          .block_size = 4,
          .host_blocks = 3,
          .vocab = 100,
          .sampler_slots = 4};
}

StepHistory small_history() {
  StepHistory history;
  history.previous_tokens = {true, false};
  history.slot_lengths = {10, 65, -1, 3};
  history.slot_capacity = 65;
  return history;
}

// A mixed step: two decode sequences, then a prefill chunk of five rows; every row kind sampled once.
Step good_step() {
  StepBuilder builder(4);
  const std::vector<int32_t> a = {3, 1}, b = {7, 8, 9}, c = {0, 2, 4};
  const std::vector<int32_t> chunk = {10, 11, 12, 13, 14};
  const int32_t first = -1, second = 42;
  builder.add({&first, 1}, 6, a);
  builder.add({&second, 1}, 11, b);
  const int32_t row = builder.add(chunk, 3, c);
  builder.sample(0, {.temperature = 0}, 0);
  builder.sample(1, {.temperature = 0.5f, .top_k = 3}, 3, {.kind = RowOutput::Kind::logprobs, .top = 5});
  builder.sample(row + 3, {}, -1, {.kind = RowOutput::Kind::score, .target = 99});
  builder.sample(row + 4, {}, -1, {.kind = RowOutput::Kind::full_logits});
  builder.step().block_saves = {{5, 2}, {9, 0}};
  builder.step().block_loads = {{1, 5}, {1, 9}};
  builder.step().block_copies = {{5, 6}};
  builder.step().blocks_to_zero = {10, 11};
  builder.reset_sampler({.slot = 2, .prompt_ids = {1, 2}, .output_ids = {3}});
  return builder.finish();
}

TEST(Validate, AcceptsAGoodStep) {
  const StepValidator validator(small_limits());
  EXPECT_NO_THROW(validator.validate(good_step(), small_history()));
}

TEST(Validate, AStepMayMoveBlocksAndHaveNoRows) {
  const StepValidator validator(small_limits());
  StepBuilder builder(4);
  builder.step().block_loads = {{2, 15}};
  EXPECT_NO_THROW(validator.validate(builder.finish(), small_history()));
  builder.clear();
  EXPECT_THROW(validator.validate(builder.finish(), small_history()), StepError) << "a step of nothing";
}

TEST(Validate, NeighboursOfOneSequenceMayShareASlot) {
  const StepValidator validator(small_limits());
  const auto step_of = [](std::vector<int32_t> tokens, int32_t slot) {
    StepBuilder builder(4);
    const std::vector<int32_t> blocks = {3, 1, 2};
    builder.add(tokens, 4, blocks);
    for (int32_t row = 0; row < static_cast<int32_t>(tokens.size()); ++row) builder.sample(row, {}, slot);
    return builder.finish();
  };
  EXPECT_NO_THROW(validator.validate(step_of({-1, 5, 6}, 0), small_history()));
  EXPECT_THROW(validator.validate(step_of({5, -1, 6}, 0), small_history()), StepError) << "a draft is known";
  StepHistory nearly_full = small_history();
  nearly_full.slot_lengths[0] = nearly_full.slot_capacity - 2;
  EXPECT_NO_THROW(validator.validate(step_of({5, 6}, 0), nearly_full));
  EXPECT_THROW(validator.validate(step_of({5, 6, 7}, 0), nearly_full), StepError);
  Step apart = step_of({5, 6, 7}, 0);
  apart.sample_rows = {0, 2};
  apart.sampling.pop_back();
  apart.sampler_slot.pop_back();
  apart.output.pop_back();
  EXPECT_THROW(validator.validate(apart, small_history()), StepError);
}

TEST(Validate, PooledSequences) {
  EngineLimits limits = small_limits();
  StepHistory history = small_history();
  history.pooled_rows = {0, 3, 0, 0};
  const auto fault = [&](std::vector<PooledSequence> pooled) -> std::string {
    Step step = good_step();
    step.pooled = std::move(pooled);
    try {
      StepValidator(limits).validate(step, history);
      return "";
    } catch (const StepError& error) {
      EXPECT_EQ(error.field(), "pooled");
      return error.what();
    }
  };
  EXPECT_NE(fault({{2, 0}}), "") << "this engine pools nothing";
  limits.pooling.kind = Pooling::Kind::last;
  EXPECT_EQ(fault({{1, 2}, {2, 0}}), "");
  EXPECT_NE(fault({{3, 0}}), "") << "there are three sequences";
  EXPECT_NE(fault({{-1, 0}}), "");
  EXPECT_NE(fault({{2, 0}, {1, 2}}), "") << "out of order";
  EXPECT_NE(fault({{1, 0}, {1, 2}}), "") << "twice";
  EXPECT_NE(fault({{1, 0}, {2, 0}}), "") << "one slot";
  EXPECT_NE(fault({{2, 4}}), "") << "four slots";
  limits.pooling.kind = Pooling::Kind::mean;
  EXPECT_EQ(fault({{2, 1}}), "") << "three rows before, as many in the slot";
  EXPECT_NE(fault({{2, 0}}), "") << "none in the slot";
}

struct Fault {
  const char* field;
  std::function<void(Step&)> seed;
};

// Each breaks one thing; the error must name the field that is wrong.
const Fault kFaults[] = {
    {"num_scheduled_tokens", [](Step& s) { s.num_scheduled_tokens = 0; }},
    {"num_scheduled_tokens", [](Step& s) { s.num_scheduled_tokens = 33; }},
    {"num_scheduled_tokens", [](Step& s) { s.num_scheduled_tokens = -7; }},
    {"num_seqs_active", [](Step& s) { s.num_seqs_active = 5; }},
    {"num_seqs_active", [](Step& s) { s.num_seqs_active = 0; }},
    {"token_ids", [](Step& s) { s.token_ids.pop_back(); }},
    {"token_ids", [](Step& s) { s.token_ids[1] = 100; }},
    {"token_ids", [](Step& s) { s.token_ids[0] = -2; }},  // row 1 of the previous step drew no token
    {"token_ids", [](Step& s) { s.token_ids[0] = -3; }},  // there was no row 2
    {"token_ids", [](Step& s) { s.token_ids[0] = std::numeric_limits<int32_t>::min(); }},
    {"positions", [](Step& s) { s.positions.push_back(0); }},
    {"positions", [](Step& s) { s.positions[3] += 1; }},
    {"positions", [](Step& s) { s.positions[0] = -1; }},
    {"slot_mapping", [](Step& s) { s.slot_mapping.clear(); }},
    {"slot_mapping", [](Step& s) { s.slot_mapping[0] = 64; }},
    {"slot_mapping", [](Step& s) { s.slot_mapping[0] = -1; }},
    {"slot_mapping", [](Step& s) { s.slot_mapping[0] += 1; }},
    {"slot_mapping",
     [](Step& s) {
       s.block_table[0 * 3 + 1] = 9, s.slot_mapping[0] = 9 * 4 + 2, s.positions[1] = 10, s.seq_lens[1] = 11,
                             s.max_seq_len = 11, s.slot_mapping[1] = 9 * 4 + 2;
     }},
    {"query_start_loc", [](Step& s) { s.query_start_loc.pop_back(); }},
    {"query_start_loc", [](Step& s) { s.query_start_loc[0] = 1; }},
    {"query_start_loc", [](Step& s) { s.query_start_loc[1] = 0; }},
    {"query_start_loc", [](Step& s) { s.query_start_loc[1] = 2, s.query_start_loc[2] = 3; }},
    {"query_start_loc", [](Step& s) { s.query_start_loc[3] = 8; }},
    {"query_start_loc", [](Step& s) { s.query_start_loc[3] = 6; }},
    {"seq_lens", [](Step& s) { s.seq_lens.push_back(1); }},
    {"seq_lens", [](Step& s) { s.seq_lens[2] = 4; }},   // fewer than its rows
    {"seq_lens", [](Step& s) { s.seq_lens[0] = 65; }},  // longer than the model allows
    {"seq_lens", [](Step& s) { s.seq_lens[0] = 13; }},  // longer than its row of the table
    {"max_query_len", [](Step& s) { s.max_query_len = 4; }},
    {"max_seq_len", [](Step& s) { s.max_seq_len = 11; }},
    {"max_blocks", [](Step& s) { s.max_blocks = 0; }},
    {"max_blocks", [](Step& s) { s.max_blocks = 17; }},
    {"block_table", [](Step& s) { s.block_table.pop_back(); }},
    {"block_table", [](Step& s) { s.block_table[0] = 16; }},
    {"block_table", [](Step& s) { s.block_table[3] = -1; }},
    {"num_decode_tokens", [](Step& s) { s.kind = StepKind::decode; }},
    {"num_decode_tokens", [](Step& s) { s.kind = StepKind::prefill; }},
    {"num_decode_tokens", [](Step& s) { s.num_decode_tokens = 0; }},
    {"num_decode_tokens", [](Step& s) { s.num_decode_tokens = 3; }},
    {"kind", [](Step& s) { s.kind = static_cast<StepKind>(9); }},
    {"block_copies", [](Step& s) { s.block_copies = {{0, 16}}; }},
    {"block_copies", [](Step& s) { s.block_copies = {{-1, 3}}; }},
    {"block_copies", [](Step& s) { s.block_copies = {{3, 3}}; }},
    {"block_copies", [](Step& s) { s.block_copies = {{3, 5}, {4, 5}}; }},
    {"block_saves", [](Step& s) { s.block_saves = {{16, 0}}; }},
    {"block_saves", [](Step& s) { s.block_saves = {{0, 3}}; }},
    {"block_saves", [](Step& s) { s.block_saves = {{-1, 0}}; }},
    {"block_saves", [](Step& s) { s.block_saves = {{4, 0}, {4, 1}}; }},
    {"block_saves", [](Step& s) { s.block_saves = {{4, 1}, {5, 1}}; }},
    {"block_loads", [](Step& s) { s.block_loads = {{3, 0}}; }},
    {"block_loads", [](Step& s) { s.block_loads = {{0, 16}}; }},
    {"block_loads", [](Step& s) { s.block_loads = {{0, 4}, {1, 4}}; }},
    {"blocks_to_zero", [](Step& s) { s.blocks_to_zero = {16}; }},
    {"blocks_to_zero", [](Step& s) { s.blocks_to_zero = {2, 2}; }},
    {"sample_rows", [](Step& s) { s.sample_rows[3] = 7; }},
    {"sample_rows", [](Step& s) { s.sample_rows[1] = 0; }},
    {"sample_rows", [](Step& s) { s.sample_rows.resize(9); }},
    {"sampling", [](Step& s) { s.sampling.pop_back(); }},
    {"sampler_slot", [](Step& s) { s.sampler_slot.pop_back(); }},
    {"sampler_slot", [](Step& s) { s.sampler_slot[0] = 4; }},
    {"sampler_slot", [](Step& s) { s.sampler_slot[1] = 0; }},                            // two rows on one slot
    {"sampler_slot", [](Step& s) { s.sampler_slot[0] = 1; }},                            // full
    {"sampler_slot", [](Step& s) { s.sampler_resets.clear(), s.sampler_slot[0] = 2; }},  // never reset
    {"sampler_slot", [](Step& s) { s.sampler_slot[0] = -1, s.sampling[0].presence_penalty = 1; }},
    {"sampler_slot", [](Step& s) { s.sampler_slot[0] = -1, s.sampling[0].bad_words = {{1}}; }},
    {"output", [](Step& s) { s.output.pop_back(); }},
    {"output", [](Step& s) { s.output[1].top = 6; }},
    {"output", [](Step& s) { s.output[1].top = -1; }},
    {"output", [](Step& s) { s.output[2].target = 100; }},
    {"output", [](Step& s) { s.output[2].target = -1; }},
    {"output", [](Step& s) { s.output[1].kind = static_cast<RowOutput::Kind>(77); }},
    {"output",
     [](Step& s) {
       for (RowOutput& o : s.output) o.kind = RowOutput::Kind::full_logits;
     }},
    {"grammar_mask", [](Step& s) { s.grammar_mask.assign(15, ~0u); }},
    {"sampler_resets", [](Step& s) { s.sampler_resets[0].slot = 4; }},
    {"sampler_resets", [](Step& s) { s.sampler_resets.push_back(s.sampler_resets[0]); }},
    {"sampler_resets", [](Step& s) { s.sampler_resets[0].prompt_ids = {100}; }},
    {"sampler_resets", [](Step& s) { s.sampler_resets[0].output_ids = {-1}; }},
    {"sampler_resets", [](Step& s) { s.sampler_resets[0].prompt_ids.assign(65, 1); }},
    {"sampling.temperature", [](Step& s) { s.sampling[0].temperature = -1; }},
    {"sampling.temperature", [](Step& s) { s.sampling[0].temperature = std::nanf(""); }},
    {"sampling.top_k", [](Step& s) { s.sampling[0].top_k = -2; }},
    {"sampling.top_p", [](Step& s) { s.sampling[0].top_p = 0; }},
    {"sampling.top_p", [](Step& s) { s.sampling[0].top_p = 1.5f; }},
    {"sampling.min_p", [](Step& s) { s.sampling[0].min_p = -0.1f; }},
    {"sampling.presence_penalty", [](Step& s) { s.sampling[0].presence_penalty = INFINITY; }},
    {"sampling.frequency_penalty", [](Step& s) { s.sampling[0].frequency_penalty = -INFINITY; }},
    {"sampling.repetition_penalty", [](Step& s) { s.sampling[0].repetition_penalty = 0; }},
    {"sampling.min_tokens", [](Step& s) { s.sampling[0].min_tokens = -1; }},
    {"sampling.stop_token_ids", [](Step& s) { s.sampling[0].stop_token_ids = {100}; }},
    {"sampling.allowed_token_ids", [](Step& s) { s.sampling[0].allowed_token_ids = {-1}; }},
    {"sampling.logit_bias", [](Step& s) { s.sampling[0].logit_bias = {{100, 1.0f}}; }},
    {"sampling.logit_bias", [](Step& s) { s.sampling[0].logit_bias = {{1, NAN}}; }},
    {"sampling.bad_words", [](Step& s) { s.sampling[0].bad_words = {{}}; }},
    {"sampling.bad_words", [](Step& s) { s.sampling[0].bad_words = {{1, 100}}; }},
};

TEST(Validate, NamesTheFieldOfEveryFault) {
  const StepValidator validator(small_limits());
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    Step step = good_step();
    kFaults[i].seed(step);
    try {
      validator.validate(step, small_history());
      ADD_FAILURE() << "fault " << i << " (" << kFaults[i].field << ") was accepted";
    } catch (const StepError& error) {
      EXPECT_EQ(error.field(), kFaults[i].field) << "fault " << i << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(kFaults[i].field), std::string::npos) << error.what();
      const std::string field = kFaults[i].field;
      EXPECT_EQ(error.param(), field.starts_with("sampling.") ? field.substr(9) : "") << "what a request calls it";
    }
  }
}

TEST(Validate, TellsIndexAndLimit) {
  const StepValidator validator(small_limits());
  Step step = good_step();
  step.token_ids[4] = 123;
  try {
    validator.validate(step, small_history());
    FAIL();
  } catch (const StepError& error) {
    EXPECT_EQ(error.index(), 4);
    EXPECT_EQ(error.value(), 123);
    EXPECT_EQ(error.limit(), 100);
    EXPECT_STREQ(error.what(), "step: token_ids[4]: 123 is outside [0, 100)");
  }
}

}  // namespace
}  // namespace ingot
