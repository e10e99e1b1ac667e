// Each invariant of the step contract, asserted on the counters the engine keeps while it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "backend/backend.h"
#include "backend/cuda_device.h"
#include "backend/metal_mode.h"
#include "engine/internals.h"
#include "engine/sequences.h"
#include "ingot/step_builder.h"
#include "step/validate.h"

namespace ingot::testing {
namespace {

// On Linux Metal is the software device, in its strict mode: it fails on its own where a rule is broken.
class ContractTest : public ::testing::Test {
 protected:
  // `where`: a device, or device:type of the KV cache.
  void load(const std::string& where, const std::string& model, int64_t max_model_len) {
    const size_t colon = where.find(':');
    test::metal_in_strict_mode();
    // Of a Metal device every size of a step is a kernel to compile: small ones there, but for the long form.
    const bool small = where.starts_with("metal") && !soak();
    prompt_ = small ? 2 : 5;
    EngineOptions options;
    options.model = fixture_model(model);
    options.device = where.substr(0, colon);
    if (colon != std::string::npos) options.kv_dtype = where.substr(colon + 1);
    options.threads = 2;
    options.max_model_len = max_model_len;
    options.max_seqs = small ? 3 : 16;
    options.kv_blocks = 16 * 8;
    options.max_step_tokens = small ? 4 : 96;
    options.host_cache_bytes = 1 << 20;
    engine_ = Engine::load(options);
    blocks_ = assign_blocks(engine_->limits(), 16, max_model_len, 3);
  }

  // A step with `decode` sequences at position 0 and `prefill` prompts; every sequence's last row
  // samples.
  const Step& make_step(int decode, int prefill) {
    builder_.clear();
    for (int s = 0; s < decode; ++s) builder_.add({&kToken, 1}, 0, blocks_[s]);
    const std::vector<int32_t> ids = random_ids(prompt_, engine_->limits().vocab, 5);
    std::vector<int32_t> rows;
    for (int s = 0; s < decode; ++s) rows.push_back(s);
    const auto last = static_cast<int32_t>(prompt_) - 1;
    for (int s = 0; s < prefill; ++s) rows.push_back(builder_.add(ids, 0, blocks_[decode + s]) + last);
    for (int32_t row : rows) builder_.sample(row, greedy_);
    return builder_.finish();
  }

  void expect_one_submission_and_one_wait() {
    struct Shape {
      int decode, prefill;
      StepKind kind;
    };
    const auto room = static_cast<int>(engine_->limits().max_step_tokens / static_cast<int64_t>(prompt_));
    for (int batch : {1, 2, 3, 4, 8, 16}) {
      if (batch > std::min(engine_->limits().max_seqs, room)) break;
      for (const Shape& shape :
           {Shape{batch, 0, StepKind::decode}, Shape{0, batch, StepKind::prefill},
            Shape{batch / 2, batch - batch / 2, batch == 1 ? StepKind::prefill : StepKind::mixed}}) {
        const Step& step = make_step(shape.decode, shape.prefill);
        ASSERT_EQ(step.kind, shape.kind);
        const StepStats stats = engine_->run(step).stats;
        EXPECT_EQ(stats.submissions, 1u);
        EXPECT_EQ(stats.waits, 1u);
        EXPECT_EQ(stats.encode_waits, 0u);
        EXPECT_EQ(stats.encode_readbacks, 0u);
        EXPECT_EQ(stats.encode_allocations, 0u);
        EXPECT_EQ(stats.encode_compiles, 0u);
        EXPECT_GT(stats.dispatches, 0u);
        EXPECT_GT(stats.weight_bytes, 0u);
        EXPECT_GT(stats.run_us, 0);
      }
    }
  }

  // The greedy continuation of a fixed prompt, one step at a time: what a healthy engine answers.
  std::vector<int32_t> continuation(int count) {
    std::vector<int32_t> ids = random_ids(kContinued, engine_->limits().vocab, 77);
    const size_t prompt = ids.size();
    for (int i = 0; i < count; ++i) {
      builder_.clear();
      const int64_t start = i == 0 ? 0 : static_cast<int64_t>(ids.size()) - 1;
      builder_.add(std::span(ids).subspan(start), start, blocks_[0]);
      builder_.sample(builder_.rows() - 1, greedy_);
      ids.push_back(engine_->run(builder_.finish()).rows[0].token);
    }
    return {ids.begin() + static_cast<int64_t>(prompt), ids.end()};
  }

  static constexpr int32_t kToken = 17;
  static constexpr int32_t kContinued = 4;  // tokens of the prompt that continuation() goes on from
  size_t prompt_ = 5;                       // tokens of each prompt
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<int32_t>> blocks_;
  StepBuilder builder_{16};
  SamplingParams greedy_{.temperature = 0};
};

class Contract : public ContractTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    const std::string device = GetParam().substr(0, GetParam().find(':'));
    INGOT_SKIP_WITHOUT_CUDA(device);
    load(GetParam(), "llama-bf16-llama3", 128);
  }
};

TEST_P(Contract, OneSubmissionOneWaitNothingElse) { expect_one_submission_and_one_wait(); }

// What a family adds (experts are sorted by what the step computes, windows, learned positions) keeps to it too.
class FamilyContract : public ContractTest,
                       public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {};

TEST_P(FamilyContract, OneSubmissionOneWaitNothingElse) {
  const auto& [device, model] = GetParam();
  INGOT_SKIP_WITHOUT_CUDA(device);
  load(device, model, 64);
  expect_one_submission_and_one_wait();
}

// An answer has the bits of decoding when it is computed again, and when it is guessed and verified.
TEST_P(Contract, GeneratedRowsHaveTheBitsOfDecodeRows) {
  const std::vector<int32_t> ids = random_ids(24, engine_->limits().vocab, 9);
  constexpr int64_t kPrompt = 7;
  const auto logits_of = [&](int32_t block_set, const std::vector<int64_t>& cuts) {  // ends of the steps' rows
    std::vector<std::vector<float>> logits;
    int64_t at = 0;
    for (const int64_t end : cuts) {
      builder_.clear();
      builder_.add(std::span(ids).subspan(at, end - at), at, blocks_[block_set]);
      for (int64_t row = at; row < end; ++row)
        builder_.sample(static_cast<int32_t>(row - at), greedy_, -1, {.kind = RowOutput::Kind::full_logits});
      const StepResult result = engine_->run(builder_.finish());
      for (const RowResult& row : result.rows)
        if (at >= kPrompt) logits.push_back(row.logits);
      EXPECT_EQ(result.stats.encode_compiles, 0u);
      at = end;
    }
    return logits;
  };
  std::vector<int64_t> one_by_one = {4, kPrompt};
  for (int64_t end = kPrompt + 1; end <= 24; ++end) one_by_one.push_back(end);
  const auto plain = logits_of(0, one_by_one);
  EXPECT_EQ(logits_of(1, {4, kPrompt, 8, 10, 14, 17, 21, 24}), plain);
  EXPECT_EQ(logits_of(2, {3, 4, kPrompt, 11, 12, 15, 19, 20, 24}), plain);
}

TEST_P(Contract, RowsNobodyAskedForProduceNothing) {
  builder_.clear();
  const std::vector<int32_t> ids = random_ids(4, engine_->limits().vocab, 5);
  builder_.add(ids, 0, blocks_[0]);  // a chunk that is not the last: no sample
  const StepResult silent = engine_->run(builder_.finish());
  EXPECT_TRUE(silent.rows.empty());
  EXPECT_EQ(silent.stats.submissions, 1u);
  const StepResult sampled = engine_->run(make_step(0, 1));
  EXPECT_GT(sampled.stats.weight_bytes, silent.stats.weight_bytes) << "the head was read for rows that nobody samples";
}

TEST_P(Contract, TwoStepsInFlightFeedEachOther) {
  const std::vector<int32_t> expected = continuation(6);
  std::vector<int32_t> prompt = random_ids(kContinued, engine_->limits().vocab, 77);
  builder_.clear();
  builder_.add(prompt, 0, blocks_[1]);
  builder_.sample(kContinued - 1, greedy_);
  StepTicket ticket = engine_->submit(builder_.finish());
  std::vector<int32_t> got;
  const int32_t from_previous = -1;  // row 0 of the step before
  for (int64_t i = 0; i < 6; ++i) {
    StepTicket next;
    if (i + 1 < 6) {
      builder_.clear();
      builder_.add({&from_previous, 1}, kContinued + i, blocks_[1]);
      builder_.sample(0, greedy_);
      next = engine_->submit(builder_.finish());
      if (i == 0) {
        EXPECT_THROW(engine_->submit(builder_.finish()), Error) << "a third step was accepted";
        EXPECT_THROW(engine_->wait(next), Error) << "steps must be waited for in order";
      }
    }
    got.push_back(engine_->wait(ticket).rows[0].token);
    ticket = next;
  }
  EXPECT_EQ(got, expected);
}

TEST_P(Contract, WritingASlotAgainOverwritesIt) {
  const std::vector<int32_t> expected = continuation(3);
  engine_->run(make_step(0, 2));  // other tokens over the same blocks
  EXPECT_EQ(continuation(3), expected);
}

TEST_P(Contract, BlockCopyCarriesTheContext) {
  // A prompt in blocks_[0], its first block copied elsewhere, continued there: the same next token.
  const std::vector<int32_t> prompt = random_ids(4, engine_->limits().vocab, 21);
  builder_.clear();
  builder_.add(prompt, 0, blocks_[0]);
  builder_.sample(3, greedy_);
  const int32_t first = engine_->run(builder_.finish()).rows[0].token;
  const auto next_token = [&](const std::vector<int32_t>& blocks, bool copy) {
    builder_.clear();
    builder_.add({&first, 1}, 4, blocks);
    builder_.sample(0, greedy_, -1, {.kind = RowOutput::Kind::full_logits});
    if (copy) builder_.step().block_copies = {{blocks_[0][0], blocks[0]}};
    return engine_->run(builder_.finish()).rows[0].logits;
  };
  const std::vector<float> expected = next_token(blocks_[0], false);
  engine_->run(make_step(0, 2));  // dirt in the target
  builder_.clear();
  builder_.add(prompt, 0, blocks_[0]);
  engine_->run(builder_.finish());
  EXPECT_EQ(next_token(blocks_[1], true), expected);

  builder_.clear();
  builder_.add({&first, 1}, 4, blocks_[6]);
  builder_.sample(0, greedy_, -1, {.kind = RowOutput::Kind::full_logits});
  builder_.step().blocks_to_zero = {blocks_[6][0]};
  EXPECT_NE(engine_->run(builder_.finish()).rows[0].logits, expected) << "a zeroed block still had the context";
}

// A block that went to host memory and came back elsewhere, through steps without rows, is what it was.
TEST_P(Contract, HostBlocksCarryTheContext) {
  const std::vector<int32_t> prompt = random_ids(4, engine_->limits().vocab, 21);
  const auto last_logits = [&](const std::vector<int32_t>& blocks) {
    builder_.clear();
    builder_.add({&prompt[3], 1}, 3, blocks);
    builder_.sample(0, greedy_, -1, {.kind = RowOutput::Kind::full_logits});
    return engine_->run(builder_.finish()).rows[0].logits;
  };
  builder_.clear();
  builder_.add(std::span(prompt).first(3), 0, blocks_[0]);
  engine_->run(builder_.finish());
  const std::vector<float> expected = last_logits(blocks_[0]);
  const auto move = [&](std::vector<BlockCopy> saves, std::vector<BlockCopy> loads) {
    builder_.clear();
    builder_.step().block_saves = std::move(saves);
    builder_.step().block_loads = std::move(loads);
    const StepResult result = engine_->run(builder_.finish());
    EXPECT_TRUE(result.rows.empty());
    EXPECT_EQ(result.stats.submissions, 1u);
    EXPECT_EQ(result.stats.waits, 1u);
    EXPECT_EQ(result.stats.encode_waits + result.stats.encode_readbacks + result.stats.encode_allocations, 0u);
  };
  move({{blocks_[0][0], 1}}, {});
  const std::vector<std::byte> kept(engine_->host_block(1).begin(), engine_->host_block(1).end());
  engine_->run(make_step(0, 2));  // dirt
  EXPECT_TRUE(std::ranges::equal(engine_->host_block(1), kept));
  std::ranges::copy(kept, engine_->host_block(2).begin());  // as one that was read from a file
  std::ranges::fill(engine_->host_block(1), std::byte{0x55});
  move({}, {{2, blocks_[1][0]}, {1, blocks_[0][0]}});
  EXPECT_EQ(last_logits(blocks_[1]), expected);
  EXPECT_NE(last_logits(blocks_[0]), expected) << "another block's bytes were the same";
}

// Moves of blocks that no row touches may run beside the rows. The steps behind them, submitted at once, find them
// done.
TEST_P(Contract, MovesBesideRowsAreOverBeforeTheNextStep) {
  const std::vector<int32_t> prompt = random_ids(4, engine_->limits().vocab, 21);
  const auto rows = [&](std::span<const int32_t> ids, int64_t start, const std::vector<int32_t>& blocks) {
    builder_.clear();
    builder_.add(ids, start, blocks);
    builder_.sample(builder_.rows() - 1, greedy_, -1, {.kind = RowOutput::Kind::full_logits});
  };
  const auto submit = [&](std::vector<BlockCopy> saves, std::vector<BlockCopy> loads) {
    builder_.step().block_saves = std::move(saves);
    builder_.step().block_loads = std::move(loads);
    return engine_->submit(builder_.finish());
  };
  const int32_t block = blocks_[0][0];
  rows(std::span(prompt).first(3), 0, blocks_[0]);
  engine_->run(builder_.finish());
  rows({&prompt[3], 1}, 3, blocks_[0]);
  const std::vector<float> expected = engine_->run(builder_.finish()).rows[0].logits;

  rows({&kToken, 1}, 0, blocks_[2]);
  const StepTicket saving = submit({{block, 3}}, {});
  rows({&kToken, 1}, 1, blocks_[2]);
  const StepTicket loading = submit({}, {{3, blocks_[1][0]}});
  engine_->wait(saving);
  rows({&prompt[3], 1}, 3, blocks_[1]);
  const StepTicket reading = submit({}, {});
  engine_->wait(loading);
  EXPECT_EQ(engine_->wait(reading).rows[0].logits, expected);

  rows({&kToken, 1}, 2, blocks_[2]);
  const StepTicket again = submit({{block, 4}}, {});
  rows({&kToken, 1}, 0, blocks_[0]);  // overwrites what is being saved
  const StepTicket writing = submit({}, {});
  engine_->wait(again);
  engine_->wait(writing);
  EXPECT_TRUE(std::ranges::equal(engine_->host_block(4), engine_->host_block(3)));
}

// 100 malformed steps, generated; each is refused by name, and the engine goes on as if nothing had been asked.
TEST_P(Contract, MalformedStepsLeaveTheEngineAlone) {
  const std::vector<int32_t> expected = continuation(4);
  std::mt19937 random(2024);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    Step step = make_step(1, engine_->limits().max_seqs > 4 ? static_cast<int>(random() % 4) + 1 : 1);
    const auto pick = [&](size_t size) { return random() % size; };
    const int32_t wild[] = {-1000000, 1 << 30, -2147483647 - 1, 2147483647, 129};
    const int32_t bad = wild[pick(std::size(wild))];
    switch (round % 12) {
      case 0: step.token_ids[pick(step.token_ids.size())] = bad == 129 ? 100000 : bad; break;
      case 1: step.positions[pick(step.positions.size())] = bad; break;
      case 2: step.slot_mapping[pick(step.slot_mapping.size())] = static_cast<int64_t>(bad) * 1000; break;
      case 3: step.seq_lens[pick(step.seq_lens.size())] = bad; break;
      case 4: step.query_start_loc[pick(step.query_start_loc.size())] = bad; break;
      case 5: step.block_table[pick(step.num_seqs_active) * step.max_blocks] = bad; break;
      case 6: step.sample_rows[pick(step.sample_rows.size())] = bad; break;
      case 7: step.num_scheduled_tokens = bad; break;
      case 8: step.block_copies = {{0, bad}}; break;
      case 9: step.sampler_slot[pick(step.sampler_slot.size())] = bad == -1 ? 50 : bad; break;
      case 10: step.slot_mapping.back() = step.slot_mapping.front(); break;
      case 11: step.max_blocks = bad; break;
    }
    try {
      engine_->submit(step);
      ADD_FAILURE() << "malformed step " << round << " was accepted";
    } catch (const StepError& error) {
      ++refused;
      EXPECT_FALSE(error.field().empty());
    }
    if (round % 10 == 9) {
      ASSERT_EQ(continuation(4), expected) << "after malformed step " << round;
    }
  }
  EXPECT_EQ(refused, 100);
  EXPECT_EQ(continuation(4), expected);
}

TEST_P(Contract, AFailedStepFailsAloneAndTheNextWorks) {
  const std::vector<int32_t> expected = continuation(4);
  EngineInternals::device(*engine_).inject_failure();
  EXPECT_THROW(engine_->run(make_step(1, 1)), Error);
  EXPECT_EQ(continuation(4), expected);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Contract, ::testing::Values("cpu", "cpu:int8"));
INSTANTIATE_TEST_SUITE_P(Metal, Contract,
                         ::testing::ValuesIn(unless_sanitized<std::string>({"metal", "metal:int8"}, {})));
INSTANTIATE_TEST_SUITE_P(Cuda, Contract, ::testing::Values("cuda", "cuda:int8"));
INSTANTIATE_TEST_SUITE_P(Families, FamilyContract,
                         ::testing::Combine(::testing::Values("cpu", "cuda"),
                                            ::testing::Values("qwen3moe-bf16", "gemma3-f16", "gpt2-f16")));
// Those whose kernels families_test.cc has compiled.
INSTANTIATE_TEST_SUITE_P(MetalFamilies, FamilyContract,
                         ::testing::Combine(::testing::Values("metal"),
                                            ::testing::ValuesIn(unless_sanitized<std::string>(
                                                soak() ? std::vector<std::string>{"qwen3moe-bf16", "gemma3-f16",
                                                                                  "gpt2-f16"}
                                                       : std::vector<std::string>{"qwen3moe-gguf-bf16"},
                                                {}))));

}  // namespace
}  // namespace ingot::testing
