#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "backend/metal/linear/plan.h"
#include "core/error.h"
#include "quant_blocks.h"

// Packing of weights for the Metal kernels, and the choice of kernels: host code alone. What packed bytes mean is shown
// by the kernels' own test.
namespace ingot::metal {
namespace {

struct Source {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<TensorView> tensors;
  MatrixSpec spec;
};
struct Part {
  DType type;
  int64_t rows;
  int64_t head = 0;
};

std::unique_ptr<Source> make(const std::vector<Part>& parts, int64_t cols) {
  auto s = std::make_unique<Source>();
  std::mt19937 rng(1);
  s->spec = {"test", {}, 0, cols};
  for (const Part& part : parts) s->bytes.push_back(test::random_tensor(part.type, part.rows, cols, rng));
  for (size_t i = 0; i < parts.size(); ++i)
    s->tensors.push_back({"part", parts[i].type, {parts[i].rows, cols}, std::as_bytes(std::span(s->bytes[i]))});
  for (size_t i = 0; i < parts.size(); ++i) {
    s->spec.parts.push_back({&s->tensors[i], parts[i].head});
    s->spec.rows += parts[i].rows;
  }
  return s;
}

std::vector<std::byte> pack(const MatrixSpec& spec) {
  Packer packer(spec, nullptr);
  std::vector<std::byte> bytes(packer.bytes());
  packer.fill(0, bytes);
  return bytes;
}

TEST(MetalPack, KeepsTheSizeOfTheFile) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const auto s = make({{type, 24}}, 512);
    EXPECT_EQ(pack(s->spec).size(), s->bytes[0].size()) << dtype_name(type);
    EXPECT_EQ(packed_planes(type, 512).meta_offset % 16, 0u);
    EXPECT_EQ(packed_planes(type, dtype_info(type).block_size).panel_bytes % 16, 0u);
  }
}

TEST(MetalPack, PartsOfOneFormatAreOne) {
  const auto s = make({{DType::q4_k, 16}, {DType::q4_k, 8}, {DType::q6_k, 8}}, 256);
  const std::vector<Segment> parts = packed_segments(s->spec);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].rows, 24);
  EXPECT_EQ(parts[1].first_row, 24);
  EXPECT_EQ(parts[1].offset, 24u * 144);
  // The second part is what it would be alone.
  const auto alone = make({{DType::q6_k, 8}}, 256);
  alone->bytes[0] = s->bytes[2];
  alone->tensors[0].data = std::as_bytes(std::span(alone->bytes[0]));
  const std::vector<std::byte> all = pack(s->spec), want = pack(alone->spec);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), all.begin() + static_cast<ptrdiff_t>(parts[1].offset), all.end()));
}

TEST(MetalPack, PutsRotaryHalvesBack) {
  const auto s = make({{DType::f32, 16, 8}}, 8);
  const std::vector<std::byte> packed = pack(s->spec);
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t in_head = row % 8, source = row - in_head + (in_head < 4 ? 2 * in_head : 2 * (in_head - 4) + 1);
    EXPECT_EQ(std::memcmp(packed.data() + row * 32, s->bytes[0].data() + source * 32, 32), 0) << "row " << row;
  }
}

TEST(MetalPack, AnyCutGivesTheSameBytesAndDropsEachSourceByteOnce) {
  const auto s = make({{DType::q5_k, 24, 8}, {DType::f16, 13}}, 256);
  const std::vector<std::byte> want = pack(s->spec);
  for (size_t piece : {16u, 1008u, 4096u, 1u << 20}) {
    std::vector<std::pair<const std::byte*, size_t>> dropped;
    Packer packer(s->spec, [&](std::span<const std::byte> range) { dropped.push_back({range.data(), range.size()}); });
    std::vector<std::byte> got(packer.bytes());
    for (size_t at = 0; at < got.size(); at += piece)
      packer.fill(at, std::span(got).subspan(at, std::min(piece, got.size() - at)));
    EXPECT_EQ(got, want) << "pieces of " << piece;
    size_t bytes = 0;
    for (size_t i = 0; i < dropped.size(); ++i) {
      bytes += dropped[i].second;
      const bool same_tensor = i > 0 && dropped[i].first > dropped[i - 1].first;
      EXPECT_TRUE(!same_tensor || dropped[i].first >= dropped[i - 1].first + dropped[i - 1].second);
    }
    EXPECT_EQ(bytes, s->bytes[0].size() + s->bytes[1].size()) << "pieces of " << piece;
  }
}

TEST(MetalPack, RefusesTensorsThatDoNotFit) {
  const auto expect_refused = [](const MatrixSpec& spec, const std::string& why) {
    try {
      packed_segments(spec);
      FAIL() << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  auto s = make({{DType::q8_0, 8}}, 64);
  s->spec.rows = 9;
  expect_refused(s->spec, "expected 9");
  s = make({{DType::q8_0, 8}}, 64);
  s->spec.cols = 32;
  expect_refused(s->spec, "32 columns");
  s = make({{DType::q8_0, 8}}, 64);
  s->tensors[0].data = s->tensors[0].data.first(17);
  expect_refused(s->spec, "17 bytes");
  s = make({{DType::f32, 12, 8}}, 8);
  expect_refused(s->spec, "whole heads of 8");
}

// The order of a sum: from columns and format alone, whatever the rows, the outputs and the device.
TEST(MetalPlan, SlicesFollowFromColumnsAndFormat) {
  for (int t = 0; t < kNumDTypes; ++t)
    for (const int64_t cols : {32, 256, 576, 896, 1536, 5120, 32768}) {
      const auto format = static_cast<DType>(t);
      if (is_block_quantized(format) && cols % dtype_info(format).block_size != 0) continue;
      const int64_t slice = slice_columns(format, cols);
      EXPECT_EQ(slice % (is_block_quantized(format) ? 256 : 64), 0);
      EXPECT_LE((cols + slice - 1) / slice, 8);
      for (const int64_t rows : {1, 8, 16, 40, 64, 200, 2048})
        for (const int64_t outputs : {8, 576, 131072})
          for (const int family : {7, 9, 10, kNvidiaFamily})
            for (const int64_t experts : {0, 64}) {
              LinearShape shape;
              shape.format = shape.format_up = format;
              shape.cols = cols;
              shape.rows = rows;
              shape.outputs = outputs;
              shape.experts = shape.items = experts;
              shape.item_rows = rows < 40 ? 8 : 64;
              EXPECT_EQ(plan_linear(shape, linear_variant(shape, family)).params.columns.slice_columns, slice);
            }
    }
}

// Many rows share x wherever the device has threadgroup memory for it, and never take more than there is.
TEST(MetalPlan, SharedRowsFitThreadgroupMemory) {
  for (const int64_t bytes : {32 << 10, 99 << 10, 227 << 10})
    for (const bool gated : {false, true})
      for (const auto& [outputs, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {6144, 5120}, {5120, 4096}, {32768, 5120}, {5120, 32768}, {131072, 5120}, {14336, 4096}, {4096, 896}})
        for (const int64_t rows : {17, 32, 33, 64, 100, 1000}) {
          LinearShape shape;
          shape.format = shape.format_up = shape.in = shape.out = DType::bf16;
          if (gated) shape.activation = ActivationKind::silu;
          shape.rows = rows;
          shape.outputs = shape.out_stride = outputs;
          shape.cols = cols;
          shape.threadgroup_bytes = bytes;
          const LinearVariant variant = linear_variant(shape, kNvidiaFamily);
          EXPECT_LE(plan_linear(shape, variant).threadgroup_bytes, static_cast<size_t>(bytes));
          EXPECT_FALSE(gated && variant.split);
          const bool shares = rows > 32 && rows <= 128 && cols % 512 == 0 && bytes == 227 << 10;
          EXPECT_TRUE(variant.shared > 0 || !shares) << outputs << " x " << cols << ", " << rows << " rows";
        }
}

// A model's load walks through steps of 1, 2, 4, ... and the most rows: that must meet every specialisation a step can
// ask for, as none may be compiled then.
TEST(MetalPlan, FewStepsMeetEverySpecialisation) {
  for (const int family : {9, kNvidiaFamily})
    for (int64_t most : {1, 2, 3, 16, 17, 33, 34, 100, 256})
      for (DType in : {DType::f16, DType::bf16})
        for (DType type : {DType::f16, DType::q4_1, DType::f32}) {
          LinearShape shape;
          shape.format = shape.format_up = type;
          shape.in = shape.out = in;
          shape.cols = 512;
          shape.outputs = shape.out_stride = 4096;
          const auto key = [&](int64_t rows) {
            shape.rows = rows;
            const LinearPlan plan = plan_linear(shape, linear_variant(shape, family));
            return std::pair(std::string(plan.kernel), plan.constants);
          };
          std::set<decltype(key(1))> known;
          for (int64_t rows = 1; rows < most; rows *= 2) known.insert(key(rows));
          known.insert(key(most));
          EXPECT_LE(known.size(), family == 9 ? 4u : 6u) << "each costs a compilation when a model is loaded";
          for (int64_t rows = 1; rows <= most; ++rows)
            ASSERT_TRUE(known.contains(key(rows))) << rows << " rows, at most " << most;
        }
}

TEST(MetalPlan, ThreadgroupMemoryIsWithinLimits) {
  for (const DType in : {DType::f16, DType::bf16, DType::f32})
    for (int t = 0; t < kNumDTypes; ++t)
      for (const bool gated : {false, true})
        for (const int64_t rows : {1, 9, 20, 256})
          for (const int64_t cols : {32, 512, 5120}) {
            LinearShape shape;
            shape.format = shape.format_up = static_cast<DType>(t);
            shape.in = in;
            if (gated) shape.activation = ActivationKind::silu;
            shape.rows = rows;
            shape.cols = cols;
            shape.outputs = 100;
            const LinearPlan plan = plan_linear(shape, linear_variant(shape, 9));
            EXPECT_LE(plan.threadgroup_bytes, 32768u)
                << dtype_name(shape.format) << ", " << rows << " rows of " << cols;
            EXPECT_LE(plan.threads, 256u);
          }
}

}  // namespace
}  // namespace ingot::metal
