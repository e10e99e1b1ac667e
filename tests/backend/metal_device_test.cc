#include "backend/metal/device.h"

#include <gtest/gtest.h>
#include <softmetal/softmetal.h>

#include "core/error.h"
#include "harness.h"
#include "metal_mode.h"

namespace ingot::test {
namespace {

constexpr int64_t kDim = 64;

// A device with one vector and room for a few rows.
struct Rig {
  explicit Rig(const MetalOptions& options) {
    metal_in_strict_mode();
    device = make_metal_backend(options);
    RegionPlan plan;
    norm.rows = 2;
    norm.dim = kDim;
    norm.in = plan.take(2 * kDim);
    norm.out = plan.take(2 * kDim);
    device->create_scratch(plan.bytes());
    device->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    norm.weight = device->load_vector("weight", std::vector<float>(kDim, 1.0f));
    put(*device, norm.in, std::vector<float>(2 * kDim, 1.0f), true);
  }
  std::unique_ptr<Backend> device;
  NormOp norm;
};

TEST(MetalDevice, CountsWhatIsSubmitted) {
  for (const bool profile : {false, true}) {
    const softmetal::Counters start = softmetal::counters();
    Rig rig({.profile = profile});
    testing::internal::CaptureStderr();
    run_step(*rig.device, {}, [&] { rig.device->encode(rig.norm); });
    const DeviceCounters before = rig.device->counters();
    const auto norms = [&] {
      for (int i = 0; i < 3; ++i) rig.device->encode(rig.norm);
    };
    run_step(*rig.device, {}, norms);
    const DeviceCounters after = rig.device->counters();
    EXPECT_EQ(after.dispatches - before.dispatches, 3u);
    // One; with a profile one for the inputs, one a dispatch and one for the outputs.
    EXPECT_EQ(after.submissions - before.submissions, profile ? 5u : 1u);
    EXPECT_EQ(after.waits - before.waits, 1u);
    // And from the first copy on what Metal was asked for is what was counted.
    const softmetal::Counters seen = softmetal::counters();
    EXPECT_EQ(after.submissions, seen.submissions - start.submissions);
    EXPECT_EQ(after.waits, seen.waits - start.waits);
    EXPECT_EQ(after.dispatches, seen.dispatches - start.dispatches);
    rig.device.reset();
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("norm_f16") != std::string::npos, profile);
  }
}

// A vector of three staging buffers and a bit: of the four copies two reuse what the first two were made from.
TEST(MetalDevice, NoticesACopyOfWeightsThatFails) {
  const std::vector<float> large((size_t{3} << 22) + 5, 1.0f), small(kDim, 1.0f);
  for (unsigned copy = 1; copy <= 4; ++copy) {
    metal_with_fault("copy", copy);
    const std::unique_ptr<Backend> device = make_metal_backend({});
    try {
      device->load_vector("large", large);
      ADD_FAILURE() << "copy " << copy << " failed unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device);
      EXPECT_EQ(std::string(error.what()),
                "gpu: uploading weight large failed: softmetal: a fault, as SOFTMETAL_FAULT asked for");
    }
    EXPECT_NO_THROW(device->load_vector("small", small)) << "what failed is of no concern to what comes after";
  }
}

// One dispatch waits for another exactly where one of them writes what the other touches, and nothing is waited for
// twice.
TEST(MetalDevice, PlacesABarrierWhereOneIsNeeded) {
  metal_in_strict_mode();
  const std::unique_ptr<Backend> device = make_metal_backend({});
  const std::vector<float> values(4 * kDim, 1.0f);
  const TensorView tensor{"table", DType::f32, {4, kDim}, std::as_bytes(std::span(values))};
  RegionPlan plan;
  const Region embedded = plan.take(2 * kDim), sum = plan.take(kDim), other = plan.take(kDim);
  device->create_scratch(plan.bytes());
  device->create_io(4096, OutputLayout::of(1, 1, 1, 16));
  for (const Region region : {sum, other}) put(*device, region, std::vector<float>(kDim, 1.0f), true);
  EmbedOp embed;
  embed.table = device->load_matrix({"table", {{&tensor, 0}}, 4, kDim});
  embed.out = embedded;
  NormOp norm{.rows = 1, .dim = kDim, .in = embedded, .accumulate = true};
  norm.weight = device->load_vector("weight", std::vector<float>(kDim, 1.0f));
  TestStep step;
  step.token_ids = {1, 2};
  step.positions = {0, 0};
  step.slots = {0, 0};

  const auto barriers = [&](const std::function<void()>& operations) {
    const uint64_t before = device->counters().barriers;
    run_step(*device, step, operations);
    return device->counters().barriers - before;
  };
  const auto add = [&](Region in, Region out) {
    norm.in = in;
    norm.out = out;
    device->encode(norm);
  };
  const Region second_row{embedded.offset + kDim * sizeof(float), kDim * sizeof(float)};
  const auto embeds_and_reads = [&](Region row) {
    return barriers([&] {
      device->encode(embed);
      add(row, sum);
    });
  };
  EXPECT_EQ(embeds_and_reads(embedded), 1u) << "the first row that was written is read";
  EXPECT_EQ(embeds_and_reads(second_row), 1u) << "the last row that was written is read";
  const auto two_readers = [&] {
    device->encode(embed);
    add(embedded, sum);
    add(embedded, other);
  };
  EXPECT_EQ(barriers(two_readers), 1u) << "the second reader has nothing left to wait for";
  const auto strangers = [&] {
    add(embedded, sum);
    add(embedded, other);
  };
  EXPECT_EQ(barriers(strangers), 0u);
}

TEST(MetalDevice, FewRowsFindTheirExpertsInOneDispatch) {
  struct Case {
    int64_t rows, per_token;
    uint64_t dispatches;
  };
  for (const auto& [rows, per_token, dispatches] : {Case{64, 2, 1}, Case{65, 2, 2}, Case{64, 9, 2}}) {
    metal_in_strict_mode();
    const std::unique_ptr<Backend> device = make_metal_backend({});
    RegionPlan plan;
    ExpertRoute route{rows, 16, per_token};
    for (Region* region : {&route.ids, &route.weights, &route.order, &route.places})
      *region = plan.take(static_cast<size_t>(route.pairs()));
    route.starts = plan.take(17);
    route.items = plan.take(static_cast<size_t>(route.item_words()));
    const RouteOp op{plan.take(static_cast<size_t>(rows * 16)), route, true};
    device->create_scratch(plan.bytes());
    device->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    put(*device, op.logits, std::vector<float>(static_cast<size_t>(rows * 16), 0.5f), true);
    const uint64_t before = device->counters().dispatches;
    run_step(*device, {}, [&] { device->encode(op); });
    EXPECT_EQ(device->counters().dispatches - before, dispatches) << rows << " rows";
  }
}

TEST(MetalDevice, RefusesWhatDoesNotFitTogether) {
  Rig rig({});
  const auto refused = [&](const Op& op) {
    const StagedStep staged = TestStep{}.stage(*rig.device);
    rig.device->begin(staged);
    EXPECT_ANY_THROW(rig.device->encode(op));
  };
  EXPECT_ANY_THROW(rig.device->encode(rig.norm)) << "outside a step";
  NormOp op = rig.norm;
  op.rows = 1000;
  refused(op);
  op = rig.norm;
  op.weight = WeightId{7};
  refused(op);
  op = rig.norm;
  op.dim = kDim / 2;
  refused(op);
  refused(LinearOp{.rows = 1, .in = rig.norm.in, .weight = rig.norm.weight, .out = rig.norm.out});
}

}  // namespace
}  // namespace ingot::test
