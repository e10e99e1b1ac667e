// Which ways of a product are timed, and the file that keeps what was chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "backend/metal/linear/candidates.h"
#include "backend/metal/linear/choice_file.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr int64_t kNvidiaBytes = 227 << 10, kAppleBytes = 32 << 10;

LinearShape shape_of(DType format, int64_t rows, int64_t outputs, int64_t cols, bool gated = false) {
  LinearShape shape{.format = format, .format_up = format, .rows = rows, .cols = cols, .outputs = outputs};
  shape.in = shape.out = format == DType::bf16 ? DType::bf16 : DType::f16;
  shape.out_stride = outputs;
  if (gated) shape.activation = ActivationKind::silu;
  shape.threadgroup_bytes = kNvidiaBytes;
  return shape;
}
LinearShape experts_of(int64_t item_rows, bool gated) {
  LinearShape shape = shape_of(DType::bf16, 64, 768, 2048, gated);
  shape.experts = 128;
  shape.item_rows = item_rows;
  shape.items = 64;
  return shape;
}
LinearVariant shared(int matrix, int unroll, int crowd, bool split) {
  return {.matrix = matrix, .unroll = unroll, .shared = 8, .split = split, .crowd = crowd};
}

struct Tuned {
  LinearShape shape;
  LinearVariant variant;
};

// What was the fastest on an H200, by hand, for the shapes of Devstral, Qwen3-30B-A3B and Qwen2-0.5B.
std::vector<Tuned> tuned_by_hand() {
  constexpr DType kBf16 = DType::bf16, kBytes = DType::q8_0, kNibbles = DType::q4_k, kBlocks = DType::q6_k;
  const auto of = [](DType format, int64_t rows, int64_t outputs, int64_t cols, LinearVariant variant) {
    return Tuned{shape_of(format, rows, outputs, cols), variant};
  };
  const auto gated = [](DType format, int64_t rows, LinearVariant variant) {
    return Tuned{shape_of(format, rows, 32768, 5120, true), variant};
  };
  return {
      of(kBf16, 1, 6144, 5120, {.matrix = 2, .unroll = 4}),
      of(kBf16, 8, 5120, 32768, {.matrix = 5, .unroll = 4}),
      of(kBf16, 8, 896, 896, {.matrix = 2, .unroll = 4}),
      of(kBf16, 16, 131072, 5120, {.matrix = 2, .unroll = 4}),
      of(kBf16, 16, 6144, 5120, {.matrix = 2, .unroll = 2}),
      of(kBf16, 32, 131072, 5120, shared(4, 2, 512, false)),
      of(kBf16, 32, 6144, 16384, shared(3, 2, 512, true)),
      of(kBf16, 32, 5120, 32768, shared(5, 4, 256, true)),
      of(kBf16, 32, 896, 896, {.matrix = 2, .unroll = 1}),
      of(kBf16, 64, 131072, 5120, shared(4, 2, 512, false)),
      of(kBf16, 64, 8192, 5120, shared(4, 2, 512, true)),
      of(kBf16, 64, 6144, 5120, shared(3, 2, 512, true)),
      of(kBf16, 64, 5120, 4096, shared(5, 4, 256, true)),
      of(kBf16, 64, 4096, 4096, shared(4, 4, 256, true)),
      of(kBf16, 64, 896, 4864, {.matrix = 2, .unroll = 1}),
      gated(kBf16, 8, {.matrix = 1, .unroll = 4}),
      gated(kBf16, 16, {.matrix = 1, .unroll = 4}),
      gated(kBf16, 32, shared(2, 2, 512, false)),
      gated(kBf16, 64, shared(2, 2, 512, false)),
      {experts_of(8, false), {.matrix = 2, .unroll = 4, .crowd = 512}},
      {experts_of(16, false), {.matrix = 2, .unroll = 4, .crowd = 512}},
      {experts_of(8, true), {.matrix = 1, .unroll = 4, .crowd = 768}},
      {experts_of(16, true), {.matrix = 1, .unroll = 4, .crowd = 512}},
      of(kBytes, 8, 131072, 5120, {.matrix = 2, .unroll = 4}),
      of(kBytes, 8, 6144, 5120, {.matrix = 3, .unroll = 4}),
      of(kBytes, 16, 131072, 5120, {.matrix = 4, .unroll = 4}),
      of(kBytes, 16, 5120, 32768, {.matrix = 5, .unroll = 4}),
      of(kBytes, 16, 6144, 5120, {.matrix = 6, .unroll = 4}),
      of(kBytes, 16, 4096, 16384, {.matrix = 2, .unroll = 4}),
      of(kBytes, 16, 4096, 4096, {.matrix = 1, .unroll = 4}),
      of(kBytes, 64, 6144, 5120, {.matrix = 2, .unroll = 4}),
      gated(kBytes, 8, {.matrix = 1, .unroll = 4}),
      gated(kBytes, 16, {.matrix = 2, .unroll = 4}),
      of(kNibbles, 8, 131072, 5120, {.matrix = 4, .unroll = 2, .crowd = 512}),
      of(kNibbles, 1, 6144, 5120, {.matrix = 2, .unroll = 2, .crowd = 768}),
      of(kNibbles, 8, 5120, 32768, {.matrix = 5, .unroll = 2}),
      of(kNibbles, 8, 6144, 5120, {.matrix = 2, .unroll = 2, .crowd = 768}),
      of(kNibbles, 16, 131072, 5120, {.matrix = 4, .unroll = 2}),
      of(kNibbles, 16, 6144, 5120, {.matrix = 6, .unroll = 2}),
      of(kNibbles, 16, 4096, 4096, {.matrix = 2, .unroll = 2}),
      of(kNibbles, 1, 131072, 5120, {.matrix = 4, .unroll = 2, .shared = 16, .crowd = 512}),
      of(kNibbles, 16, 131072, 5120, {.matrix = 4, .unroll = 2, .shared = 16, .crowd = 512}),
      of(kNibbles, 16, 5120, 32768, {.matrix = 2, .unroll = 2, .shared = 20, .split = true, .crowd = 640}),
      of(kNibbles, 64, 6144, 5120, {.matrix = 2, .unroll = 1}),
      gated(kNibbles, 8, {.matrix = 2, .unroll = 2, .crowd = 512}),
      gated(kNibbles, 16, {.matrix = 2, .unroll = 2}),
      gated(kNibbles, 1, {.matrix = 2, .unroll = 2, .shared = 16, .crowd = 512}),
      gated(kNibbles, 16, {.matrix = 2, .unroll = 2, .shared = 16, .crowd = 512}),
      of(kBlocks, 8, 131072, 5120, {.matrix = 4, .unroll = 2, .crowd = 512}),
      of(kBlocks, 8, 4096, 16384, {.matrix = 2, .unroll = 2, .crowd = 768}),
      of(kBlocks, 8, 6144, 5120, {.matrix = 2, .unroll = 4}),
      of(kBlocks, 16, 6144, 5120, {.matrix = 2, .unroll = 2}),
      of(kBlocks, 64, 6144, 5120, {.matrix = 2, .unroll = 1}),
      of(kBf16, 2048, 6144, 5120,
         {.tile_rows = 128,
          .tile_outputs = 128,
          .tile_width = 64,
          .tile_turn = 32,
          .buffers = 3,
          .copies = true,
          .totals = true}),
  };
}

TEST(MetalCandidates, HaveWhatWasTunedByHand) {
  for (const Tuned& tuned : tuned_by_hand()) {
    const std::vector<LinearWay> ways = candidate_ways(tuned.shape, kNvidiaFamily, true);
    EXPECT_TRUE(std::ranges::find(ways, LinearWay{false, tuned.variant}) != ways.end())
        << name_of(ProductKey::of(tuned.shape)) << ", " << tuned.shape.rows
        << " rows: " << name_of(LinearWay{false, tuned.variant});
  }
}

// By default few rows of 4 bits share x where threadgroups are enough for all multiprocessors, and only where there is
// threadgroup memory for it.
TEST(MetalCandidates, FewRowsOfNibblesShareX) {
  const auto chosen = [](const LinearShape& shape) { return linear_variant(shape, kNvidiaFamily); };
  for (const int64_t rows : {1, 8, 16}) {
    EXPECT_EQ(chosen(shape_of(DType::q4_k, rows, 131072, 5120)).shared, 16);
    EXPECT_EQ(chosen(shape_of(DType::q4_k, rows, 32768, 5120, true)).shared, 16);
    EXPECT_TRUE(chosen(shape_of(DType::q4_k, rows, 5120, 32768)).split);
    EXPECT_EQ(chosen(shape_of(DType::q4_k, rows, 6144, 5120)).shared, 0);
    LinearShape small = shape_of(DType::q4_k, rows, 131072, 5120);
    small.threadgroup_bytes = kAppleBytes / 2;
    EXPECT_EQ(chosen(small).shared, 0);
  }
  EXPECT_EQ(chosen(shape_of(DType::q4_k, 17, 131072, 5120)).shared, 0);
}

// And those of bytes, where rows are more than one and no more than warpgroups leave to them.
TEST(MetalCandidates, FewRowsOfBytesShareX) {
  const auto shared = [](const LinearShape& shape) { return linear_variant(shape, kNvidiaFamily).shared; };
  for (const int64_t rows : {2, 8}) {
    EXPECT_EQ(shared(shape_of(DType::q8_0, rows, 131072, 5120)), 16);
    EXPECT_EQ(shared(shape_of(DType::q8_0, rows, 32768, 5120, true)), 16);
    EXPECT_EQ(shared(shape_of(DType::q8_0, rows, 6144, 5120)), 0);
  }
  for (const int64_t rows : {1, 9, 16}) EXPECT_EQ(shared(shape_of(DType::q8_0, rows, 131072, 5120)), 0);
}

// By default 9 to 16 rows of numbers keep x for more than two panels: by sets, or sharing it, split where columns are
// many. Where outputs are few each two panels are a threadgroup.
TEST(MetalCandidates, SixteenRowsOfNumbersKeepX) {
  const auto chosen = [](int64_t rows, int64_t outputs, int64_t cols, bool gated = false) {
    return linear_variant(shape_of(DType::bf16, rows, outputs, cols, gated), kNvidiaFamily);
  };
  const LinearVariant alone{.matrix = 2, .unroll = 4};
  for (const int64_t rows : {9, 16}) {
    EXPECT_EQ(chosen(rows, 6144, 5120), (LinearVariant{.matrix = 2, .unroll = 2, .sets = 3, .crowd = 768}));
    EXPECT_EQ(chosen(rows, 5120, 32768), (LinearVariant{.matrix = 5, .unroll = 4, .shared = 8, .split = true}));
    EXPECT_EQ(chosen(rows, 131072, 5120), (LinearVariant{.matrix = 4, .unroll = 2, .shared = 8, .crowd = 512}));
    EXPECT_EQ(chosen(rows, 32768, 5120, true), (LinearVariant{.matrix = 2, .unroll = 2, .shared = 8, .crowd = 512}));
    EXPECT_EQ(chosen(rows, 896, 4864), alone);
    EXPECT_EQ(chosen(rows, 4864, 896, true).shared, 0);
  }
  EXPECT_EQ(chosen(8, 6144, 5120), alone);
  EXPECT_EQ(chosen(8, 131072, 5120), alone);
  LinearShape experts = experts_of(16, false);
  EXPECT_EQ(linear_variant(experts, kNvidiaFamily).sets, 0);
}

// The default first, each way once and by a name of its own, all of them within the device; and not too many to time.
TEST(MetalCandidates, AreFewAndFit) {
  std::vector<LinearShape> shapes = {experts_of(8, true), experts_of(16, false), experts_of(32, true),
                                     experts_of(64, false)};
  for (const DType format : {DType::f32, DType::bf16, DType::q8_0, DType::q4_k, DType::q6_k})
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 2048})
      for (const bool gated : {false, true}) shapes.push_back(shape_of(format, rows, 6144, 5120, gated));
  shapes.push_back(shape_of(DType::bf16, 3, 70, 407));  // columns that nothing is unrolled for
  for (const int64_t rows : {3, 20, 70}) {
    LinearShape cut = shape_of(DType::bf16, rows, 70, 512);
    cut.cuts = 2;
    cut.left = 1;
    cut.cut = {LinearCut{0, 256, 0}, LinearCut{256, 256, 70 * 512}};
    cut.out = DType::f32;
    shapes.push_back(cut);
  }
  for (LinearShape shape : shapes)
    for (const int family : {7, 9, kNvidiaFamily})
      for (const bool library : {false, true}) {
        shape.threadgroup_bytes = family == kNvidiaFamily ? kNvidiaBytes : kAppleBytes;
        const std::vector<LinearWay> ways = candidate_ways(shape, family, library);
        const std::string what = name_of(ProductKey::of(shape)) + " family " + std::to_string(family);
        EXPECT_EQ(ways.front(), default_way(shape, family, library)) << what;
        EXPECT_LE(ways.size(), 44u) << what;
        std::set<std::string> names;
        for (const LinearWay& way : ways) {
          EXPECT_TRUE(names.insert(name_of(way)).second) << what << ": " << name_of(way);
          EXPECT_TRUE(!way.library || library) << what;
          EXPECT_TRUE(way.library || fits(shape, way.variant, family)) << what << ": " << name_of(way);
        }
      }
}

// Rows of a bucket have one choice, and with it one set of pipelines; what differs in more than rows has another.
TEST(MetalCandidates, KeysFollowBuckets) {
  const auto rows = [](int64_t n) { return ProductKey::of(shape_of(DType::bf16, n, 64, 64)).rows; };
  EXPECT_EQ(rows(1), 1);
  for (const auto& [least, most] : {std::pair{2, 8}, {9, 16}, {17, 32}, {33, 64}, {65, 128}, {1025, 2048}}) {
    EXPECT_EQ(rows(least), most);
    EXPECT_EQ(rows(most), most);
  }
  LinearShape shape = shape_of(DType::q4_k, 5, 512, 256, true);
  const ProductKey key = ProductKey::of(shape);
  std::set<std::string> names = {name_of(key)};
  const auto differs = [&](auto change) {
    LinearShape other = shape;
    change(other);
    EXPECT_NE(ProductKey::of(other), key);
    EXPECT_TRUE(names.insert(name_of(ProductKey::of(other))).second) << name_of(ProductKey::of(other));
  };
  differs([](LinearShape& s) { s.format = DType::q8_0; });
  differs([](LinearShape& s) { s.format_up = DType::q6_k; });
  differs([](LinearShape& s) { s.activation = ActivationKind::gelu; });
  differs([](LinearShape& s) { s.activation.reset(); });
  differs([](LinearShape& s) { s.in = DType::f32; });
  differs([](LinearShape& s) { s.cols = 512; });
  differs([](LinearShape& s) { s.outputs = 256; });
  differs([](LinearShape& s) { s.cuts = 4; });
  differs([](LinearShape& s) { s.experts = s.item_rows = 8; });
}

class MetalChoiceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("ingot_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    path_ = folder_ / "tuning" / choice_file_name("Some GPU, 1.0", "");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  ChoiceFile open() const { return {path_, owner_}; }

  std::filesystem::path folder_, path_;
  ChoiceOwner owner_{"Some GPU, 1.0", "driver 7", "kernels_abc"};
};

TEST_F(MetalChoiceFile, KeepsChoices) {
  EXPECT_EQ(path_.filename(), "Some-GPU--1.0.txt");
  ChoiceFile file = open();
  EXPECT_EQ(file.size(), 0u);
  EXPECT_TRUE(file.complaint().empty()) << "no file is no fault";
  file.keep("a, 8 rows", {"few m2 u4", 1.5, 2.25});
  ChoiceFile other = open();  // another process, which has something else
  other.keep("b, 1 rows", {"library", 3, 0});
  file.keep("c, 1 rows", {"few m1 u0", 4, 4});
  const ChoiceFile read = open();
  EXPECT_TRUE(read.complaint().empty()) << read.complaint();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read.find("a, 8 rows")->way, "few m2 u4");
  EXPECT_EQ(read.find("a, 8 rows")->us, 1.5);
  EXPECT_EQ(read.find("a, 8 rows")->default_us, 2.25);
  EXPECT_EQ(read.find("b, 1 rows")->way, "library");
  EXPECT_EQ(read.find("d, 1 rows"), nullptr);
  for (const auto& entry : std::filesystem::directory_iterator(path_.parent_path()))
    EXPECT_EQ(entry.path(), path_) << "nothing is left beside it";
}

TEST_F(MetalChoiceFile, BrokenOnesAreLeftAndWrittenAnew) {
  open().keep("a, 8 rows", {"few m2 u4", 1.5, 2.25});
  const std::string good = text();
  std::vector<std::string> broken = {"",
                                     "\n",
                                     "something else\n",
                                     good + "more\n",
                                     good.substr(0, good.size() / 2),
                                     good.substr(0, good.rfind("sum "))};
  for (size_t at = 0; at < good.size(); at += 7) {
    broken.push_back(good);
    broken.back()[at] = broken.back()[at] == 'x' ? 'y' : 'x';
  }
  for (const std::string& bad : broken) {
    write(bad);
    ChoiceFile file = open();
    EXPECT_EQ(file.size(), 0u) << bad;
    EXPECT_NE(file.complaint().find("not used"), std::string::npos) << bad;
    EXPECT_EQ(file.complaint().find('\n'), std::string::npos) << "one line";
    file.keep("a, 8 rows", {"few m2 u4", 1.5, 2.25});
    EXPECT_EQ(text(), good);
  }
}

TEST_F(MetalChoiceFile, OthersDriversAndKernelsDoNotCount) {
  open().keep("a, 8 rows", {"few m2 u4", 1.5, 2.25});
  const ChoiceOwner own = owner_;
  for (const auto& [name, field] : {std::pair{"device", &ChoiceOwner::device},
                                    {"driver", &ChoiceOwner::driver},
                                    {"kernels", &ChoiceOwner::kernels}}) {
    owner_ = own;
    owner_.*field += " of another kind";
    const ChoiceFile file = open();
    EXPECT_EQ(file.size(), 0u) << name;
    EXPECT_NE(file.complaint().find(name), std::string::npos) << file.complaint();
  }
  ChoiceFile file = open();  // of other kernels
  file.keep("b, 1 rows", {"library", 3, 4});
  EXPECT_EQ(open().size(), 1u) << "what was there before is gone";
}

TEST_F(MetalChoiceFile, SaysWhereItCannotWrite) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "tuning") << "a file where the folder should be";
  ChoiceFile file = open();
  EXPECT_THROW(file.keep("a, 8 rows", {"few m2 u4", 1.5, 2.25}), Error);
  EXPECT_NE(file.find("a, 8 rows"), nullptr) << "it is in force all the same";
}

}  // namespace
}  // namespace ingot::metal
