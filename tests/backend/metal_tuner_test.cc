// Ways are chosen by timing: with times that are made up, and the real thing on the software device.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "backend/metal/device.h"
#include "backend/metal/linear/tuner.h"
#include "core/error.h"
#include "harness.h"
#include "metal_mode.h"
#include "quant_blocks.h"
#include "soak.h"

namespace ingot::test {
namespace {

using namespace metal;

std::filesystem::path fresh_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("ingot_" + std::string(test->name()));
  std::filesystem::remove_all(folder);
  return folder;
}

struct MadeUpTimes final : WayTimer {
  void begin(const SeenProduct& product) override { now = name_of(product.key); }
  std::vector<std::byte> result(const LinearWay& way) override {
    if (refused.contains(name_of(way))) throw_error(ErrorKind::device, "no registers for {}", name_of(way));
    return {std::byte{7}, other_bits.contains(name_of(way)) ? std::byte{8} : std::byte{9}};
  }
  double time(const LinearWay& way) override {
    ++timed[name_of(way)];
    const auto found = us.find(name_of(way));
    return found != us.end() ? found->second : 100;
  }
  double memory_gb_s() override { return 1; }
  void end() override { ++ended; }

  std::map<std::string, double> us;
  std::set<std::string> other_bits, refused;
  std::map<std::string, int> timed;
  std::string now;
  int ended = 0;
};

class MetalTuner : public ::testing::Test {
 protected:
  void SetUp() override {
    matrix_.rows = 6144;
    matrix_.cols = 5120;
    matrix_.segments = {{.type = DType::bf16, .first_row = 0, .rows = 6144, .offset = 0}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  LinearShape shape(int64_t rows) const {
    LinearShape shape{.format = DType::bf16, .rows = rows, .cols = 5120, .outputs = 6144};
    shape.in = shape.out = DType::bf16;
    shape.threadgroup_bytes = 227 << 10;
    return shape;
  }
  // As a rehearsal of steps with these rows does.
  void note(LinearChoices& choices, std::initializer_list<int64_t> rows, bool library = false) {
    for (const int64_t n : rows) choices.note(shape(n), {.weight = &matrix_, .segment = &matrix_.segments[0]}, library);
  }
  ChoiceFile file() const { return {folder_ / "choices.txt", {"a GPU", "a driver", "kernels"}}; }
  static void finish(LinearTuner& tuner) {
    for (int steps = 0; tuner.step(); ++steps) ASSERT_LT(steps, 1000);
  }

  PackedMatrix matrix_;
  std::filesystem::path folder_ = fresh_folder();
  MadeUpTimes times_;
};

TEST_F(MetalTuner, TakesTheFastestAndKeepsIt) {
  LinearChoices choices(kNvidiaFamily, file());
  note(choices, {1, 2, 4, 8, 16});
  const std::string usual = name_of(choices.way(shape(6), false));
  times_.us = {{usual, 50}, {"few m3 u2", 40}, {"few m5 u4", 41}};
  LinearTuner tuner(choices, times_);
  EXPECT_EQ(tuner.all(), 3u) << "1, 8 and 16 rows";
  EXPECT_EQ(tuner.done(), 0u);
  finish(tuner);
  EXPECT_EQ(tuner.done(), 3u);
  EXPECT_EQ(times_.ended, 1);
  for (const int64_t rows : {1, 5, 8, 9, 16}) EXPECT_EQ(name_of(choices.way(shape(rows), false)), "few m3 u2") << rows;
  EXPECT_NE(name_of(choices.way(shape(17), false)), "few m3 u2") << "no product of so many rows was seen";
  const std::vector<TunedProduct> table = tuner.table();
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[1].rows, 8) << "timed with the most rows of a bucket";
  EXPECT_EQ(table[1].way, "few m3 u2");
  EXPECT_EQ(table[1].default_way, usual);
  EXPECT_EQ(table[1].us, 40);
  EXPECT_EQ(table[1].default_us, 50);
  EXPECT_EQ(table[1].bytes, 6144.0 * 5120 * 2);
  EXPECT_EQ(table[1].operations, 2.0 * 8 * 6144 * 5120);
  EXPECT_FALSE(table[1].kept);
  EXPECT_TRUE(tuner.take_notes().empty());

  LinearChoices later(kNvidiaFamily, file());
  EXPECT_NE(name_of(later.way(shape(6), false)), "few m3 u2") << "until a rehearsal has shown the product";
  note(later, {8, 64});
  EXPECT_EQ(name_of(later.way(shape(6), false)), "few m3 u2");
  LinearTuner next(later, times_);
  EXPECT_EQ(next.done(), 1u);
  EXPECT_TRUE(next.table().at(0).kept);
  next.forget();
  EXPECT_EQ(next.done(), 0u);
  EXPECT_EQ(name_of(later.way(shape(6), false)), usual);
}

// One way at a time, so that a request never waits for more.
TEST_F(MetalTuner, GoesInSmallSteps) {
  LinearChoices choices(kNvidiaFamily, {});
  note(choices, {8});
  LinearTuner tuner(choices, times_);
  size_t steps = 0;
  for (int most = 0; tuner.step(); ++steps) {
    const int before = std::exchange(most, 0);
    for (const auto& [way, times] : times_.timed) most += times;
    EXPECT_LE(most - before, 12) << "the finalists are timed in turns";
  }
  EXPECT_EQ(steps, candidate_ways(shape(8), kNvidiaFamily, false).size() + 2) << "and the beginning and the end";
}

TEST_F(MetalTuner, NoiseChangesNothing) {
  LinearChoices choices(kNvidiaFamily, file());
  note(choices, {8});
  const LinearWay usual = choices.way(shape(8), false);
  times_.us = {{name_of(usual), 50}, {"few m3 u2", 49.8}};
  LinearTuner tuner(choices, times_);
  finish(tuner);
  EXPECT_EQ(choices.way(shape(8), false), usual);
  EXPECT_EQ(file().size(), 1u) << "that nothing is faster is known now, too";
}

TEST_F(MetalTuner, OtherBitsAndFailuresAreLeftOut) {
  LinearChoices choices(kNvidiaFamily, {});
  note(choices, {8});
  times_.us = {{"few m3 u2", 10}, {"few m5 u4", 20}, {"few m4 u2", 30}};
  times_.other_bits = {"few m3 u2"};
  times_.refused = {"few m5 u4"};
  LinearTuner tuner(choices, times_);
  finish(tuner);
  EXPECT_EQ(name_of(choices.way(shape(8), false)), "few m4 u2");
  const std::vector<std::string> notes = tuner.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("few m3 u2 gives other bits"), std::string::npos) << notes[0];
  EXPECT_FALSE(times_.timed.contains("few m3 u2"));
}

// What counts are the bits of the kernels: a library that has others goes, though it is the default and faster.
TEST_F(MetalTuner, ALibraryWithOtherBitsIsNoDefault) {
  LinearChoices choices(kNvidiaFamily, {});
  note(choices, {2048}, true);
  EXPECT_TRUE(choices.way(shape(2048), true).library);
  const std::string tiles = name_of(candidate_ways(shape(2048), kNvidiaFamily, true).back());
  times_.us = {{"library", 10}, {tiles, 20}};
  LinearTuner trusting(choices, times_);
  finish(trusting);
  EXPECT_TRUE(choices.way(shape(2048), true).library);
  times_.other_bits = {"library"};
  trusting.forget();
  finish(trusting);
  EXPECT_EQ(name_of(choices.way(shape(2000), true)), tiles);
}

TEST_F(MetalTuner, WithoutAnyWayTheDefaultStays) {
  LinearChoices choices(kNvidiaFamily, file());
  note(choices, {8});
  const LinearWay usual = choices.way(shape(8), false);
  for (const LinearWay& way : candidate_ways(shape(8), kNvidiaFamily, false)) times_.refused.insert(name_of(way));
  LinearTuner tuner(choices, times_);
  finish(tuner);
  EXPECT_EQ(choices.way(shape(8), false), usual);
  EXPECT_EQ(tuner.take_notes().size(), 1u);
  EXPECT_EQ(file().size(), 0u);
}

// A file from a build whose candidates were others.
TEST_F(MetalTuner, UnknownWaysAreNotTaken) {
  file().keep("bf16 6144 x 5120 of bf16, 8 rows", {"few m9 u9", 1, 2});
  LinearChoices choices(kNvidiaFamily, file());
  const LinearWay usual = choices.way(shape(8), false);
  note(choices, {8});
  EXPECT_EQ(choices.way(shape(8), false), usual);
}

// ---- the real thing -------------------------------------------------------------------------------------------------

constexpr int64_t kRows = 3, kCols = 70, kOutputs = 21;

// A device with one product of weights that have three candidates of few rows.
class TunedDevice {
 public:
  explicit TunedDevice(const std::string& folder, bool tunes = true) {
    std::mt19937 random(7);
    bytes_ = random_tensor(DType::f32, kOutputs, kCols, random);
    const TensorView tensor{"w", DType::f32, {kOutputs, kCols}, std::as_bytes(std::span(bytes_))};
    MetalOptions options;
    options.tuning_folder = folder;
    options.tunes_software = tunes;
    device = make_metal_backend(options);
    op_ = {.rows = kRows, .in = plan_.take(kRows * kCols), .out = plan_.take(kRows * kOutputs), .f32_out = true};
    device->create_scratch(plan_.bytes());
    device->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    op_.weight = device->load_matrix({"w", {{&tensor, 0}}, kOutputs, kCols});
    x_ = random_floats(random, kRows * kCols);
    const StagedStep step{.tokens = kRows};
    device->rehearse(step, [this] { device->encode(op_); });
  }
  std::vector<float> product() {
    put(*device, op_.in, x_);
    run_step(*device, {}, [this] { device->encode(op_); });
    return get(*device, op_.out, kRows * kOutputs, true);
  }

  std::unique_ptr<Backend> device;

 private:
  std::vector<uint8_t> bytes_;
  RegionPlan plan_;
  LinearOp op_;
  std::vector<float> x_;
};

class MetalTunedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "many kernels, none of its own for a sanitizer";
    metal_in_watched_mode(::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path only_file() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) files.push_back(entry.path());
    return files.size() == 1 ? files[0] : std::filesystem::path();
  }
  // What a new device says when it finds the file, and how many choices it takes.
  std::pair<std::string, size_t> look() {
    ::testing::internal::CaptureStderr();
    TunedDevice fresh(folder_);
    return {::testing::internal::GetCapturedStderr(), fresh.device->tuner()->done()};
  }

  std::filesystem::path folder_ = fresh_folder();
};

TEST_F(MetalTunedDevice, ChoosesKeepsAndReadsBack) {
  TunedDevice tuned(folder_);
  const std::vector<float> before = tuned.product();
  Tuner* tuner = tuned.device->tuner();
  ASSERT_NE(tuner, nullptr);
  EXPECT_EQ(tuner->all(), 1u);
  EXPECT_EQ(tuner->done(), 0u);
  while (tuner->step()) continue;
  EXPECT_EQ(tuner->done(), 1u);
  EXPECT_TRUE(tuner->take_notes().empty()) << "all ways have the same bits";
  ASSERT_EQ(tuner->table().size(), 1u);
  const TunedProduct found = tuner->table()[0];
  EXPECT_EQ(found.product, "f32 21 x 70 of f16");
  EXPECT_EQ(found.rows, kRows);
  EXPECT_GT(found.us, 0);
  EXPECT_GT(found.default_us, 0);
  EXPECT_GT(tuner->memory_gb_s(), 0);

  // Steps go on, with what was chosen, and need nothing more.
  const DeviceCounters counters = tuned.device->counters();
  EXPECT_EQ(tuned.product(), before);
  EXPECT_EQ(tuned.device->counters().compiles, counters.compiles);
  EXPECT_EQ(tuned.device->counters().allocations, counters.allocations);

  const std::filesystem::path file = only_file();
  ASSERT_FALSE(file.empty());
  const auto [said, kept] = look();
  EXPECT_EQ(said, "");
  EXPECT_EQ(kept, 1u);
  TunedDevice later(folder_);
  EXPECT_NE(later.device->info().tuning.find("1 products"), std::string::npos) << later.device->info().tuning;
  EXPECT_FALSE(later.device->tuner()->step());
  EXPECT_EQ(later.device->tuner()->table().at(0).way, found.way);
  EXPECT_TRUE(later.device->tuner()->table().at(0).kept);
  EXPECT_EQ(later.product(), before);

  // Broken, and made anew.
  std::string text;
  {
    std::ifstream in(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::ofstream(file, std::ios::binary) << text.substr(0, text.size() - 9);
  EXPECT_EQ(look().second, 0u);
  EXPECT_NE(look().first.find("broken"), std::string::npos);
  TunedDevice again(folder_);
  while (again.device->tuner()->step()) continue;
  EXPECT_EQ(look(), std::pair(std::string(), size_t{1}));

  // After another driver.
  const size_t driver = text.find("driver ");
  ASSERT_NE(driver, std::string::npos);
  text.insert(driver + 7, "an older one than ");
  std::ofstream(file, std::ios::binary) << text;
  EXPECT_EQ(look().second, 0u);
  EXPECT_NE(look().first.find("another driver"), std::string::npos);
}

// Experts are timed with rows that the tuner routes itself.
TEST_F(MetalTunedDevice, TimesExperts) {
  constexpr int64_t kExperts = 4, kPerToken = 2, kPairs = kRows * kPerToken, kWide = 16;
  std::mt19937 random(7);
  const std::vector<uint8_t> bytes = random_tensor(DType::f32, kExperts * kWide, kCols, random);
  const TensorView tensor{"w", DType::f32, {kExperts * kWide, kCols}, std::as_bytes(std::span(bytes))};
  MetalOptions options;
  options.tunes_software = true;
  const std::unique_ptr<Backend> device = make_metal_backend(options);
  RegionPlan plan;
  ExpertLinearOp op;
  op.route = {.rows = kRows, .experts = kExperts, .per_token = kPerToken};
  for (Region* region : {&op.route.ids, &op.route.weights, &op.route.order, &op.route.places})
    *region = plan.take(kPairs);
  op.route.starts = plan.take(kExperts + 1);
  op.route.items = plan.take(2 * kPairs + 1);
  op.in = plan.take(kPairs * kCols);
  op.out = plan.take(kPairs * kWide);
  device->create_scratch(plan.bytes());
  device->create_io(4096, OutputLayout::of(1, 1, 1, 16));
  MatrixSpec spec{"w", {{&tensor, 0}}, kExperts * kWide, kCols};
  spec.groups = kExperts;
  op.weight = device->load_matrix(spec);
  device->rehearse(StagedStep{.tokens = kRows}, [&] { device->encode(op); });
  Tuner* tuner = device->tuner();
  while (tuner->step()) continue;
  EXPECT_TRUE(tuner->take_notes().empty());
  ASSERT_EQ(tuner->table().size(), 1u);
  EXPECT_EQ(tuner->table()[0].product, "f32 4 experts 16 x 70 of f16");
  EXPECT_GT(tuner->table()[0].us, 0);
  std::vector<float> out = get(*device, op.out, kPairs * kWide, true);
  EXPECT_EQ(std::ranges::count(out, 0.0f), 0) << "every pair has its row";
}

TEST_F(MetalTunedDevice, TheSoftwareDeviceHasNone) {
  TunedDevice plain(folder_, false);
  EXPECT_EQ(plain.device->tuner(), nullptr);
  EXPECT_EQ(plain.device->info().tuning, "");
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace ingot::test
