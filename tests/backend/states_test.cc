#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance.h"
#include "harness.h"
#include "step/output.h"
#include "step/stage.h"

namespace ingot::test {
namespace {

// Two norms side by side in the rows of one activation, as a head's product reads them.
TEST_P(Conformance, NormsSideBySide) {
  for (const int64_t dim : {64, 75, 576}) {
    SetUp();
    constexpr int64_t kRows = 5;
    const auto n = static_cast<size_t>(kRows * dim);
    RegionPlan plan;
    NormOp op;
    op.rows = kRows;
    op.dim = dim;
    op.out_width = 2 * dim;
    const Region first = plan.take(n), second = plan.take(n);
    op.out = plan.take(2 * n);
    const std::vector<float> in = random_floats(random_, 2 * n, 3.0f);
    const std::vector<float> weight = random_floats(random_, static_cast<size_t>(dim));
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      put(backend, first, std::span(in).first(n), true);
      put(backend, second, std::span(in).subspan(n), true);
      op.weight = backend.load_vector("weight", weight);
    });
    run(TestStep{}, [&](Backend& backend) {
      NormOp one = op;
      one.in = first;
      backend.encode(one);
      one.in = second;
      one.out_column = dim;
      backend.encode(one);
    });
    compare(op.out, 2 * n, tolerance(*device_, 2e-6), fmt::format("{} and {} columns", dim, dim));
  }
}

// What is staged for each row comes to the device, and what rows have goes to the outputs, as it is.
TEST_P(Conformance, StatesTakenAndGiven) {
  constexpr int64_t kDim = 75, kRows = 9, kGiven = 4;
  const std::vector<float> states = random_floats(random_, kRows * kDim), table = random_floats(random_, 16 * kDim);
  Step step;
  for (int32_t t = 0; t < kRows; ++t) {
    step.token_ids.push_back(15 - t);
    step.positions.push_back(t);
    step.slot_mapping.push_back(t);
  }
  step.num_scheduled_tokens = kRows;
  step.query_start_loc = {0};
  step.state_rows = {1, 2, 5, 8};
  step.states = states;
  step.given_width = kDim;
  const EmbeddedRows embedded{
      kDim, [&](int32_t token, int32_t, float* out) { std::copy_n(&table[token * kDim], kDim, out); }};
  RegionPlan plan;
  const Region given = plan.take(kRows * kDim), rows = plan.take(kRows * kDim);
  const OutputLayout layout = OutputLayout::of(1, 1, 1, 16, 0, 0, kGiven, 2 * kDim);
  both([&](Backend& backend) {
    backend.create_scratch(plan.bytes());
    backend.create_io(1 << 16, layout);
    const StagedStep staged = stage_step(step, 16, 16, 0, backend.stage(0), &embedded);
    const auto encode = [&] {
      backend.encode(TakeStatesOp{.dim = kDim, .out = given});
      backend.encode(TakeStatesOp{.embedded = true, .dim = kDim, .out = rows});
      backend.encode(GiveStatesOp{.dim = kDim, .column = kDim, .in = given});
      backend.encode(GiveStatesOp{.dim = kDim, .in = rows});
    };
    backend.rehearse(staged, encode);
    backend.begin(staged);
    encode();
    backend.submit();
    backend.wait(0);
    const std::vector<float> out = read_states(layout, backend.output(0), kGiven);
    for (size_t i = 0; i < kGiven; ++i) {
      const auto row = static_cast<size_t>(step.state_rows[i]);
      for (size_t c = 0; c < kDim; ++c) {
        ASSERT_EQ(out[i * 2 * kDim + c], table[static_cast<size_t>(step.token_ids[row]) * kDim + c]) << i << ' ' << c;
        ASSERT_EQ(out[i * 2 * kDim + kDim + c], states[row * kDim + c]) << i << ' ' << c;
      }
    }
  });
}

}  // namespace
}  // namespace ingot::test
