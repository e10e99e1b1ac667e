#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "backend/cpu/device.h"
#include "backend/cpu/philox.h"
#include "harness.h"
#include "reference.h"
#include "reference_sampling.h"
#include "soak.h"

// SampleOp of every device: each parameter against a reference that sorts the whole vocabulary in double, and the
// distribution of what is drawn.
namespace ingot::test {
namespace {

constexpr int32_t kMaxRows = 64, kMaxTop = 20, kSlots = 4, kMaxTokens = 64;

struct Row {
  int32_t token;
  float logprob;
  int32_t rank;
  std::vector<int32_t> top_ids;
  std::vector<float> top_values;
};

class Bench {
 public:
  Bench(Backend& backend, int64_t vocab, int32_t max_rows = kMaxRows) : backend_(backend), vocab_(vocab) {
    RegionPlan plan;
    logits_ = plan.take(static_cast<size_t>(max_rows * vocab));
    backend.create_scratch(plan.bytes());
    backend.create_sampler({kSlots, kMaxTokens, vocab});
    layout_ = OutputLayout::of(max_rows, kMaxTop, 2, vocab);
    backend.create_io(8 << 20, layout_);
  }

  // logits: [rows, vocab] of the step's samples.
  std::vector<Row> run(TestStep step, const std::vector<float>& logits) {
    step.ring = ring_;
    put(backend_, logits_, logits, true);
    run_step(backend_, step, [&] { backend_.encode(SampleOp{logits_, vocab_}); });
    const std::byte* out = backend_.output(ring_).data();
    output_ = out;
    ring_ = 1 - ring_;
    std::vector<Row> rows;
    for (size_t r = 0; r < step.sample_rows.size(); ++r) {
      Row row;
      row.token = read<int32_t>(layout_.tokens, r);
      row.logprob = read<float>(layout_.logprobs, r);
      row.rank = read<int32_t>(layout_.ranks, r);
      for (int32_t i = 0; i < step.output[r].top; ++i) {
        row.top_ids.push_back(read<int32_t>(layout_.top_ids, r * kMaxTop + static_cast<size_t>(i)));
        row.top_values.push_back(read<float>(layout_.top_values, r * kMaxTop + static_cast<size_t>(i)));
      }
      rows.push_back(row);
    }
    return rows;
  }
  float logit(int32_t row, int64_t token) const {
    return read<float>(layout_.logits, static_cast<size_t>(row * vocab_ + token));
  }

 private:
  template <typename T>
  T read(size_t offset, size_t i) const {
    T value;
    std::memcpy(&value, output_ + offset + i * sizeof(T), sizeof(T));
    return value;
  }

  Backend& backend_;
  int64_t vocab_;
  Region logits_;
  OutputLayout layout_;
  int ring_ = 0;
  const std::byte* output_ = nullptr;
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

class Sampling : public testing::TestWithParam<DeviceCase> {
 protected:
  static constexpr int64_t kVocab = 1003;

  void SetUp() override { INGOT_SKIP_MISSING_DEVICE(GetParam()); }
  // On the watched device fewer rows, rounds and values: a row goes the same way as any other.
  bool thin() const { return GetParam().name.starts_with("metal") && !soak(); }
  template <typename T>
  std::vector<T> few(size_t n, std::vector<T> list) const {
    if (thin()) list.resize(n);
    return list;
  }

  // Draws the same rows on the device and on the reference; a draw that falls within rounding of a boundary may differ.
  void expect_like_reference(const std::vector<SamplingParams>& params,
                             const std::vector<std::vector<uint32_t>>& masks = {}, int64_t vocab = kVocab,
                             float spread = 2.0f, int32_t slot = 0) {
    const auto device = GetParam().make();
    ReferenceBackend reference;
    Bench on_device(*device, vocab), on_reference(reference, vocab);
    std::mt19937 random(11);
    int different = 0, all = 0;
    for (int round = 0; round < (thin() ? 2 : 3); ++round) {
      const std::vector<float> logits = random_floats(random, params.size() * static_cast<size_t>(vocab), spread);
      TestStep step;
      step.masks = masks;
      for (size_t r = 0; r < params.size(); ++r) {  // apart: neighbours on one slot would be a draft
        step.add_sample(static_cast<int32_t>(2 * r), params[r], {RowOutput::Kind::logprobs, 5, -1}, slot);
        step.sample_positions.back() = 17 * round + static_cast<int32_t>(r);
      }
      if (slot >= 0 && round % 2 == 0) {
        SamplerReset reset;
        reset.slot = slot;
        reset.prompt_ids = {1, 2, 3, 4, 5, 5, 5, 900};
        reset.output_ids = {7, 8, 8, 9, 1, 8};
        step.resets = {reset};
      }
      const std::vector<Row> got = on_device.run(step, logits);
      const std::vector<Row> want = on_reference.run(step, logits);
      for (size_t r = 0; r < params.size(); ++r, ++all) {
        if (got[r].token != want[r].token) {
          ++different;
          continue;
        }
        EXPECT_NEAR(got[r].logprob, want[r].logprob, 1e-5);
        EXPECT_EQ(got[r].rank, want[r].rank);
        EXPECT_EQ(got[r].top_ids, want[r].top_ids);
        for (size_t i = 0; i < got[r].top_values.size(); ++i)
          EXPECT_NEAR(got[r].top_values[i], want[r].top_values[i], 1e-5);
      }
      // Histories would part ways after a different draw.
      if (different > 0) break;
    }
    EXPECT_EQ(different, 0) << "of " << all;
  }

  std::vector<SamplingParams> rows(const std::function<void(SamplingParams&)>& change, int n = 32) {
    std::vector<SamplingParams> list;
    for (int i = 0; i < (thin() ? n / 4 : n); ++i) {
      SamplingParams p;
      p.seed = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + 1;
      change(p);
      list.push_back(p);
    }
    return list;
  }
};

TEST_P(Sampling, Plain) {
  expect_like_reference(rows([](SamplingParams&) {}));
  // Tokens that end a sequence count only for min_tokens, which needs a slot.
  expect_like_reference(rows([](SamplingParams& p) { p.stop_token_ids = {3}; }), {}, kVocab, 2.0f, -1);
}
TEST_P(Sampling, Temperature) {
  for (float t : few<float>(3, {0.0f, 0.7f, 5.0f, 0.1f, 1.5f}))
    expect_like_reference(rows([t](SamplingParams& p) { p.temperature = t; }));
}
TEST_P(Sampling, TopK) {
  for (int32_t k : few<int32_t>(5, {1, 17, 1002, 1003, 10, 2, 16, 50, 500, 5000, -1}))
    expect_like_reference(rows([k](SamplingParams& p) { p.top_k = k; }));
}
TEST_P(Sampling, TopP) {
  for (float top_p : few<float>(3, {1e-6f, 0.9f, 0.5f, 0.1f, 0.999f}))
    for (float spread : few<float>(1, top_p == 0.5f ? std::vector{0.01f, 8.0f, 2.0f} : std::vector{2.0f, 8.0f, 0.01f}))
      expect_like_reference(rows([top_p](SamplingParams& p) { p.top_p = top_p; }), {}, kVocab, spread);
  expect_like_reference(rows([](SamplingParams& p) {
    p.top_p = 0.9f;
    p.temperature = 3.0f;  // the mass lies further down than the logits say
  }));
}
TEST_P(Sampling, MinP) {
  for (float min_p : few<float>(2, {0.1f, 1.0f, 0.5f, 0.001f}))
    expect_like_reference(rows([min_p](SamplingParams& p) { p.min_p = min_p; }));
}
TEST_P(Sampling, Filters) {
  expect_like_reference(rows([](SamplingParams& p) {
    p.top_k = 40;
    p.top_p = 0.8f;
    p.min_p = 0.02f;
    p.temperature = 1.3f;
  }));
  expect_like_reference(rows([](SamplingParams& p) {
    p.top_p = 0.95f;
    p.min_p = 0.05f;
  }));
  // Equal logits: of those at the cut only some are left.
  expect_like_reference(rows([](SamplingParams& p) {
                          p.top_k = 10;
                          p.top_p = 0.95f;
                        }),
                        {}, kVocab, 0.0f);
}
TEST_P(Sampling, BigVocabulary) {
  expect_like_reference(rows([](SamplingParams& p) { p.top_p = 0.9f; }, 4), {}, 50257, 3.0f);
  expect_like_reference(rows([](SamplingParams& p) { p.top_k = 100; }, 4), {}, 50257, 3.0f);
  expect_like_reference(rows([](SamplingParams&) {}, 4), {}, 50257, 1.0f);
}
TEST_P(Sampling, TinyVocabulary) {
  for (int64_t vocab : {1, 2, 63, 64, 65}) {
    const auto device = GetParam().make();
    Bench bench(*device, vocab);
    std::vector<float> logits(static_cast<size_t>(vocab), 0.0f);
    logits.back() = 1.0f;
    TestStep step;
    step.add_sample(0, greedy(), {RowOutput::Kind::logprobs, 1, -1});
    EXPECT_EQ(bench.run(step, logits)[0].token, vocab - 1);
  }
}
TEST_P(Sampling, Penalties) {
  for (float temperature : few<float>(1, {1.0f, 0.0f})) {
    expect_like_reference(rows([&](SamplingParams& p) { p.temperature = temperature, p.repetition_penalty = 1.5f; }));
    expect_like_reference(rows([&](SamplingParams& p) { p.temperature = temperature, p.presence_penalty = 2.0f; }));
    expect_like_reference(rows([&](SamplingParams& p) { p.temperature = temperature, p.frequency_penalty = 0.8f; }));
    expect_like_reference(rows([&](SamplingParams& p) {
      p.temperature = temperature;
      p.repetition_penalty = 0.8f;
      p.presence_penalty = -1.0f;
      p.frequency_penalty = -0.5f;
    }));
  }
}
TEST_P(Sampling, LogitBias) {
  expect_like_reference(
      rows([](SamplingParams& p) { p.logit_bias = {{3, 5.0f}, {7, -100.0f}, {1002, 4.0f}, {3, 1.0f}}; }));
}
// A device may have memory for as many changed rows as sequences run; one that only rates a token is not changed.
TEST_P(Sampling, RowsThatChooseNothingAreNotChanged) {
  constexpr int32_t kRows = 65;
  constexpr int64_t kFew = 37;
  std::mt19937 random(5);
  const std::vector<float> logits = random_floats(random, kRows * kFew);
  TestStep step;
  SamplingParams params = greedy();
  params.logit_bias = {{3, 100.0f}};
  step.add_sample(0, params, {RowOutput::Kind::score, 0, 3});
  for (int32_t r = 1; r < kRows; ++r) step.add_sample(r, params, {RowOutput::Kind::logprobs, 1, -1});
  const auto device = GetParam().make();
  ReferenceBackend reference;
  const std::vector<Row> got = Bench(*device, kFew, kRows).run(step, logits);
  const std::vector<Row> want = Bench(reference, kFew, kRows).run(step, logits);
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(got[r].token, 3) << r;
    EXPECT_EQ(got[r].rank, want[r].rank) << r;
    EXPECT_NEAR(got[r].logprob, want[r].logprob, 1e-5) << r;
  }
}

TEST_P(Sampling, AllowedTokens) {
  expect_like_reference(rows([](SamplingParams& p) { p.allowed_token_ids = {0, 5, 64, 900, 1002}; }));
  expect_like_reference(rows([](SamplingParams& p) {
    p.allowed_token_ids = {0, 5, 64};
    p.top_k = 10;
  }));
}
TEST_P(Sampling, GrammarMask) {
  std::vector<std::vector<uint32_t>> masks;
  std::mt19937 random(2);
  for (int r = 0; r < 32; ++r) {
    std::vector<uint32_t> mask((kVocab + 31) / 32);
    for (uint32_t& word : mask) word = random() & random() & random();
    mask[0] |= 1;
    if (r % 3 == 0) mask.clear();
    masks.push_back(mask);
  }
  expect_like_reference(rows([](SamplingParams&) {}), masks);
  expect_like_reference(rows([](SamplingParams& p) { p.top_p = 0.7f; }), masks);
}

TEST_P(Sampling, GreedyTiesGoToTheLowestId) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  for (const std::vector<size_t>& tied : {std::vector<size_t>{5, 6}, {700, 64, 63}, {1002, 1001}, {0, 1002}}) {
    std::vector<float> logits(kVocab, -1.0f);
    for (size_t id : tied) logits[id] = 2.0f;
    TestStep step;
    step.add_sample(0, greedy(), {RowOutput::Kind::logprobs, 3, -1});
    const Row row = bench.run(step, logits)[0];
    EXPECT_EQ(row.token, static_cast<int32_t>(*std::min_element(tied.begin(), tied.end())));
    EXPECT_EQ(row.rank, 1);
    EXPECT_TRUE(std::is_sorted(row.top_ids.begin(), row.top_ids.begin() + static_cast<int64_t>(tied.size())));
  }
  std::vector<float> flat(kVocab, 0.0f);
  TestStep step;
  SamplingParams top1;
  top1.top_k = 1;
  step.add_sample(0, greedy(), {RowOutput::Kind::logprobs, 20, -1});
  step.add_sample(1, top1);
  flat.resize(2 * kVocab, 0.0f);
  const std::vector<Row> rows = bench.run(step, flat);
  EXPECT_EQ(rows[0].token, 0);
  for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(rows[0].top_ids[static_cast<size_t>(i)], i);
  EXPECT_NEAR(rows[0].logprob, -std::log(kVocab), 1e-5);
  EXPECT_EQ(rows[1].token, 0) << "top_k 1 of equal logits keeps the lowest id";
}

TEST_P(Sampling, MinTokensBarStopsUntilEnoughWereGenerated) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::vector<float> logits(kVocab, 0.0f);
  logits[42] = 9.0f;
  logits[43] = 8.0f;
  logits[44] = 7.0f;
  SamplingParams params = greedy();
  params.min_tokens = 3;
  params.stop_token_ids = {42, 43};
  TestStep step;
  step.add_sample(0, params, {}, 2);
  TestStep first = step;
  first.resets = {{2, {42, 43, 1, 1, 1, 1}, {}}};  // the prompt does not count
  EXPECT_EQ(bench.run(first, logits)[0].token, 44);
  EXPECT_EQ(bench.run(step, logits)[0].token, 44);
  EXPECT_EQ(bench.run(step, logits)[0].token, 44);
  EXPECT_EQ(bench.run(step, logits)[0].token, 42);
}

TEST_P(Sampling, BadWords) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::vector<float> logits(kVocab, 0.0f);
  logits[5] = 9.0f;
  logits[6] = 8.0f;
  logits[7] = 7.0f;
  SamplingParams params = greedy();
  params.bad_words = {{6}, {5, 5, 7}, {5, 5, 5}};
  TestStep step;
  step.add_sample(0, params, {}, 1);
  TestStep first = step;
  first.resets = {{1, {5, 5}, {}}};  // only generated tokens count
  EXPECT_EQ(bench.run(first, logits)[0].token, 5);
  EXPECT_EQ(bench.run(step, logits)[0].token, 5);
  // 6 is always barred, 5 and 7 after 5, 5: the lowest of the rest
  EXPECT_EQ(bench.run(step, logits)[0].token, 0);
  EXPECT_EQ(bench.run(step, logits)[0].token, 5);
}

TEST_P(Sampling, PenaltiesFollowTheHistory) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::vector<float> logits(kVocab, 0.0f);
  for (size_t i = 0; i < 5; ++i) logits[i] = 10.0f - static_cast<float>(i);
  SamplingParams params = greedy();
  params.presence_penalty = 100.0f;
  TestStep step;
  step.add_sample(0, params, {}, 3);
  TestStep first = step;
  first.resets = {{3, {0, 1}, {2}}};
  EXPECT_EQ(bench.run(first, logits)[0].token, 0);
  EXPECT_EQ(bench.run(step, logits)[0].token, 1);
  EXPECT_EQ(bench.run(step, logits)[0].token, 3);
  EXPECT_EQ(bench.run(step, logits)[0].token, 4);
  EXPECT_EQ(bench.run(first, logits)[0].token, 0) << "a reset forgets";
}

// A draft's rows are drawn as if the tokens up to each had been, and the slot takes those that were.
TEST_P(Sampling, DraftsAreDrawnAsTheirTokensWouldHaveBeen) {
  constexpr int32_t kRows = 5, kPlain = 0, kDrafted = 1, kAfter = 2;
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  SamplingParams params;
  params.allowed_token_ids = {4, 5, 6, 7, 8, 9};
  params.presence_penalty = 0.7f;
  params.frequency_penalty = 0.6f;
  params.repetition_penalty = 1.4f;
  params.bad_words = {{4, 5}, {6, 7, 8}, {9, 9}, {5, 6, 4, 7}};
  params.stop_token_ids = {4};
  params.min_tokens = 5;
  std::mt19937 random(5);
  const std::vector<int32_t> prompt = {4, 20, 9}, output = {7, 5, 6};
  for (int32_t right = 0; right < kRows; right += thin() ? 2 : 1) {  // tokens of the draft that come true
    params.seed = static_cast<uint64_t>(right);
    const std::vector<float> logits = random_floats(random, kRows * kVocab, 1.0f);
    const auto row_of = [&](int32_t r) {
      return std::vector<float>(logits.begin() + r * kVocab, logits.begin() + (r + 1) * kVocab);
    };
    std::vector<int32_t> plain;
    for (int32_t r = 0; r < kRows; ++r) {
      TestStep step;
      step.add_sample(0, params, {}, kPlain);
      step.sample_positions = {30 + r};
      if (r == 0) step.resets = {{kPlain, prompt, output}};
      plain.push_back(bench.run(step, row_of(r))[0].token);
    }
    TestStep verify;
    verify.add_rows({0, 1, 2}, 16, 29, kRows, false);
    for (int32_t r = 0; r < kRows; ++r) {
      verify.add_sample(r, params, {}, kDrafted);
      if (r > 0) verify.token_ids[static_cast<size_t>(r)] = plain[static_cast<size_t>(r - 1)];
    }
    if (right + 1 < kRows) verify.token_ids[static_cast<size_t>(right + 1)] = 900;
    verify.resets = {{kDrafted, prompt, output}};
    const std::vector<Row> got = bench.run(verify, logits);
    for (int32_t r = 0; r <= right; ++r)
      EXPECT_EQ(got[static_cast<size_t>(r)].token, plain[static_cast<size_t>(r)]) << right << ", row " << r;

    // What comes next depends on the whole history.
    std::vector<int32_t> taken = output;
    taken.insert(taken.end(), plain.begin(), plain.begin() + right + 1);
    TestStep next;
    next.add_sample(0, params, {}, kDrafted);
    next.add_sample(2, params, {}, kAfter);
    next.sample_positions = {40, 40};
    next.resets = {{kAfter, prompt, taken}};
    std::vector<float> twice = row_of(0);
    twice.insert(twice.end(), logits.begin(), logits.begin() + kVocab);
    const std::vector<Row> after = bench.run(next, twice);
    EXPECT_EQ(after[0].token, after[1].token) << right;
  }
}

TEST_P(Sampling, AFullHistoryStopsGrowing) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::vector<float> logits(kVocab, 0.0f);
  SamplingParams params = greedy();
  params.presence_penalty = 1.0f;
  TestStep step;
  step.add_sample(0, params, {}, 0);
  TestStep first = step;
  first.resets = {{0, std::vector<int32_t>(kMaxTokens - 2, 900), {}}};
  EXPECT_EQ(bench.run(first, logits)[0].token, 0);
  EXPECT_EQ(bench.run(step, logits)[0].token, 1);
  EXPECT_EQ(bench.run(step, logits)[0].token, 2);
  EXPECT_EQ(bench.run(step, logits)[0].token, 2);
}

TEST_P(Sampling, NothingLeftIsMinusOne) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::vector<float> logits(3 * kVocab, 0.0f);
  std::fill_n(logits.begin() + kVocab, kVocab, -std::numeric_limits<float>::infinity());
  TestStep step;
  step.masks = {std::vector<uint32_t>((kVocab + 31) / 32, 0), {}, {}};
  step.add_sample(0, {}, {RowOutput::Kind::logprobs, 2, -1});
  step.add_sample(1, greedy(), {RowOutput::Kind::logprobs, 2, -1});
  step.add_sample(2, greedy());  // a healthy neighbour
  for (float temperature : {0.0f, 1.0f}) {
    step.sampling[0].temperature = step.sampling[1].temperature = temperature;
    const std::vector<Row> rows = bench.run(step, logits);
    EXPECT_EQ(rows[0].token, -1);
    EXPECT_TRUE(std::isnan(rows[0].logprob));
    EXPECT_EQ(rows[0].top_ids, (std::vector<int32_t>{0, 1})) << "the raw logits are still there";
    EXPECT_EQ(rows[1].token, -1);
    EXPECT_EQ(rows[2].token, 0);
  }
}

TEST_P(Sampling, NanAndInfinity) {
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  std::mt19937 random(1);
  for (size_t where : {size_t{0}, size_t{100}, size_t{1002}})
    for (const bool filtered : {false, true}) {
      std::vector<float> logits = random_floats(random, 3 * kVocab);
      logits[where] = std::numeric_limits<float>::quiet_NaN();
      logits[kVocab + where] = std::numeric_limits<float>::infinity();
      TestStep step;
      SamplingParams params;
      if (filtered) {
        params.top_p = 0.9f;
        params.top_k = 7;
        params.logit_bias = {{3, 1.0f}};
      }
      for (int32_t r = 0; r < 3; ++r) step.add_sample(r, params, {RowOutput::Kind::logprobs, 4, -1});
      const std::vector<Row> rows = bench.run(step, logits);
      EXPECT_EQ(rows[0].token, -1);
      EXPECT_TRUE(std::isnan(rows[0].logprob));
      EXPECT_EQ(rows[0].top_ids, (std::vector<int32_t>{-1, -1, -1, -1}));
      EXPECT_EQ(rows[1].token, static_cast<int32_t>(where));
      EXPECT_GE(rows[2].token, 0);
      EXPECT_FALSE(std::isnan(rows[2].logprob));
    }
}

TEST_P(Sampling, ScoreTopAndFullLogits) {
  const auto device = GetParam().make();
  ReferenceBackend reference;
  Bench on_device(*device, kVocab), on_reference(reference, kVocab);
  std::mt19937 random(9);
  std::vector<float> logits = random_floats(random, 5 * kVocab, 3.0f);
  logits[kVocab + 17] = logits[kVocab + 18] = logits[kVocab + 900];  // ties in the score row
  TestStep step;
  step.add_sample(0, {}, {RowOutput::Kind::score, 20, 1002});
  step.add_sample(1, {}, {RowOutput::Kind::score, 0, 18});
  step.add_sample(2, {}, {RowOutput::Kind::top_logits, 20, -1});
  step.add_sample(3, {}, {RowOutput::Kind::full_logits, 0, -1});
  step.add_sample(4, {}, {RowOutput::Kind::full_logits, 0, -1});
  const std::vector<Row> got = on_device.run(step, logits), want = on_reference.run(step, logits);
  for (size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(got[r].token, want[r].token);
    EXPECT_NEAR(got[r].logprob, want[r].logprob, 1e-5);
    EXPECT_EQ(got[r].rank, want[r].rank);
    EXPECT_EQ(got[r].top_ids, want[r].top_ids);
    for (size_t i = 0; i < got[r].top_values.size(); ++i)
      EXPECT_NEAR(got[r].top_values[i], want[r].top_values[i], 1e-5);
  }
  EXPECT_EQ(got[0].token, 1002);
  EXPECT_EQ(got[2].token, -1);
  EXPECT_EQ(got[3].token, -1);
  for (int64_t i = 0; i < kVocab; ++i) {
    EXPECT_EQ(on_device.logit(0, i), logits[static_cast<size_t>(3 * kVocab + i)]);
    EXPECT_EQ(on_device.logit(1, i), logits[static_cast<size_t>(4 * kVocab + i)]);
  }
}

// Pearson's test of many draws at fixed seeds against the reference's distribution.
TEST_P(Sampling, Distribution) {
  const auto device = GetParam().make();
  constexpr int64_t kSmall = 40;
  Bench bench(*device, kSmall);
  std::mt19937 random(4);
  const std::vector<float> row = random_floats(random, kSmall, 1.5f);
  std::vector<float> logits;
  for (int r = 0; r < kMaxRows; ++r) logits.insert(logits.end(), row.begin(), row.end());
  std::vector<SamplingParams> variants(5);
  const int steps = thin() ? 4 : 50, draws = steps * kMaxRows;
  variants[1].temperature = 0.6f;
  variants[2].top_k = 6;
  variants[3].top_p = 0.8f;
  variants[4].min_p = 0.2f;
  for (size_t v = 0; v < variants.size(); v += thin() ? 4 : 1) {
    std::vector<int> counts(kSmall, 0);
    for (int s = 0; s < steps; ++s) {
      TestStep step;
      for (int32_t r = 0; r < kMaxRows; ++r) {
        variants[v].seed = 1000 + static_cast<uint64_t>(r);
        step.add_sample(r, variants[v]);
        step.sample_positions.back() = s;
      }
      for (const Row& result : bench.run(step, logits)) ++counts[static_cast<size_t>(result.token)];
    }
    StagedSampling staged{};
    staged.temperature = variants[v].temperature;
    staged.top_p = variants[v].top_p;
    staged.min_p = variants[v].min_p;
    staged.top_k = variants[v].top_k;
    staged.repetition_penalty = 1.0f;
    staged.slot = -1;
    staged.mask_offset = -1;
    const int32_t pool = 0;
    const std::vector<double> p = reference_distribution(row, staged, &pool, {}, {});
    double chi2 = 0.0, rest_expected = 0.0;
    int degrees = -1, rest = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0.0) {
        EXPECT_EQ(counts[i], 0) << "a filtered token was drawn";
      } else if (p[i] * draws < 10) {  // too rare for a cell of its own
        rest += counts[i];
        rest_expected += p[i] * draws;
      } else {
        const double expected = p[i] * draws;
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
        ++degrees;
      }
    }
    if (rest_expected > 5) {
      chi2 += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
      ++degrees;
    }
    // Mean `degrees`, variance 2 * degrees: four standard deviations.
    EXPECT_LT(chi2, degrees + 4.0 * std::sqrt(2.0 * degrees)) << "variant " << v << ", " << degrees << " degrees";
  }
}

TEST_P(Sampling, ARowDependsOnItselfAlone) {
  std::mt19937 random(8);
  const std::vector<float> all = random_floats(random, 40 * kVocab, 2.0f);
  const auto device = GetParam().make();
  Bench bench(*device, kVocab);
  TestStep together;
  for (int32_t r = 0; r < 40; ++r) {
    SamplingParams p;
    p.seed = static_cast<uint64_t>(r);
    if (r % 2) p.top_p = 0.9f;
    if (r % 3 == 0) p.top_k = 30;
    together.add_sample(r, p, {RowOutput::Kind::logprobs, 3, -1});
    together.sample_positions.back() = 5;
  }
  const std::vector<Row> want = bench.run(together, all);
  for (size_t r = 0; r < 40; r += thin() ? 7 : 3) {
    TestStep alone;
    alone.add_sample(0, together.sampling[r], together.output[r]);
    alone.sample_positions.back() = 5;
    const auto begin = all.begin() + static_cast<int64_t>(r) * kVocab;
    const Row got = bench.run(alone, {begin, begin + kVocab})[0];
    EXPECT_EQ(got.token, want[r].token);
    EXPECT_EQ(got.logprob, want[r].logprob);
    EXPECT_EQ(got.top_values, want[r].top_values);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Sampling, testing::ValuesIn(attention_devices()),
                         [](const auto& info) { return device_name(info.param); });

TEST(Philox, KnownAnswers) {
  // The published test vector of Philox4x32-10 for a counter and key of zeros starts with 6627e8d5 e169c58d.
  const double want = static_cast<double>((uint64_t{0x6627e8d5} << 32 | 0xe169c58d) >> 11) / 9007199254740992.0;
  EXPECT_EQ(cpu::philox_uniform(0, 0), want);
  EXPECT_EQ(reference_uniform(0, 0), want);
  for (uint64_t i = 1; i < 100; ++i)
    EXPECT_EQ(cpu::philox_uniform(i * 0x123456789abcdefu, i), reference_uniform(i * 0x123456789abcdefu, i));
}

TEST(SamplingCpu, ThreadsDoNotMatter) {
  std::mt19937 random(6);
  constexpr int64_t kVocab = 30000;
  const std::vector<float> logits = random_floats(random, 3 * kVocab, 2.0f);
  std::vector<Row> want;
  for (int threads : {1, 2, 5}) {
    const auto device = make_cpu_backend({.threads = threads, .isa = "", .drop_pages = {}});
    Bench bench(*device, kVocab);
    TestStep step;
    SamplingParams filtered;
    filtered.top_p = 0.95f;
    step.add_sample(0, greedy(), {RowOutput::Kind::logprobs, 10, -1});
    step.add_sample(1, {}, {RowOutput::Kind::logprobs, 10, -1});
    step.add_sample(2, filtered, {RowOutput::Kind::logprobs, 10, -1});
    const std::vector<Row> got = bench.run(step, logits);
    if (want.empty()) want = got;
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(got[r].token, want[r].token);
      EXPECT_EQ(got[r].logprob, want[r].logprob);
      EXPECT_EQ(got[r].top_values, want[r].top_values);
    }
  }
}

}  // namespace
}  // namespace ingot::test
