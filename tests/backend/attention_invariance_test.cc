#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention_rig.h"
#include "backend/cpu/device.h"
#include "backend/metal/attention.h"
#include "backend/metal/device.h"
#include "cuda_device.h"
#include "metal_mode.h"
#include "soak.h"

// A row's attention is the same to the bit however its sequence was cut into steps and whatever shares them.
namespace ingot::test {
namespace {

struct InvarianceCase {
  std::string isa;
  int64_t head_size, group, kv_heads, block_size, window;
  KvType dtype;
};

void PrintTo(const InvarianceCase& c, std::ostream* out) { *out << c.isa << " head size " << c.head_size; }

std::vector<InvarianceCase> cases() {
  std::vector<InvarianceCase> list;
  for (const std::string& name : attention_isas()) {
    list.push_back({name, 64, 3, 2, 16, 0, KvType::f16});
    list.push_back({name, 80, 1, 2, 8, 0, KvType::bf16});
    list.push_back({name, 128, 8, 1, 32, 100, KvType::f16});
    list.push_back({name, 40, 5, 1, 16, 300, KvType::f32});
    list.push_back({name, 64, 3, 2, 16, 0, KvType::int8});
    list.push_back({name, 72, 5, 1, 8, 100, KvType::int8});
    list.push_back({name, 256, 4, 1, 32, 0, KvType::int8});
  }
  // Of a GPU only the attention promises this; its matrix products sum prefill rows in another order.
  list.push_back({"metal", 64, 3, 1, 16, 0, KvType::f16});
  list.push_back({"metal", 128, 2, 1, 8, 100, KvType::int8});
  list.push_back({"metal", 72, 2, 1, 16, 300, KvType::bf16});
  if (soak()) {
    list.push_back({"metal", 64, 3, 2, 16, 0, KvType::int8});
    list.push_back({"metal", 72, 5, 1, 8, 100, KvType::int8});
    list.push_back({"metal", 128, 4, 2, 16, 0, KvType::f16});
    list.push_back({"metal", 256, 8, 1, 32, 300, KvType::f16});
  }
  list.push_back({"cuda", 64, 3, 2, 16, 0, KvType::f16});
  list.push_back({"cuda", 128, 4, 2, 16, 0, KvType::bf16});
  list.push_back({"cuda", 256, 8, 1, 32, 300, KvType::f16});
  list.push_back({"cuda", 128, 4, 2, 16, 0, KvType::int8});
  list.push_back({"cuda", 96, 5, 1, 8, 100, KvType::f16});
  list.push_back({"cuda", 64, 7, 2, 16, 0, KvType::bf16});
  list.push_back({"cuda", 128, 8, 1, 32, 100, KvType::f16});
  return list;
}

class AttentionInvariance : public testing::TestWithParam<InvarianceCase> {
 protected:
  static constexpr int32_t kLength = 523;  // three splits

  AttentionCase config() const {
    const InvarianceCase& p = GetParam();
    AttentionCase c;
    c.shape.heads = p.group * p.kv_heads;
    c.shape.kv_heads = p.kv_heads;
    c.shape.head_size = p.head_size;
    c.shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_size)));
    c.shape.window = p.window;
    c.shape.rope_dims = p.head_size;
    c.kv_dtype = p.dtype;
    c.block_size = p.block_size;
    c.num_blocks = 4096 / p.block_size;
    return c;
  }
  void SetUp() override { INGOT_SKIP_WITHOUT_CUDA(GetParam().isa); }
  std::unique_ptr<Backend> device(int threads) const {
    if (GetParam().isa == "cuda") return make_metal_backend({.cuda = true});
    if (GetParam().isa == "metal") {
      metal_in_asked_mode();
      return make_metal_backend();
    }
    return make_cpu_backend({.threads = threads, .isa = GetParam().isa, .drop_pages = {}});
  }
  // Row by row from here on: over the end of one split.
  int32_t late() const { return soak() ? 440 : 505; }
  bool gpu() const { return GetParam().isa == "metal" || GetParam().isa == "cuda"; }
  bool cuda() const { return GetParam().isa == "cuda"; }
  bool tiled() const {
    return gpu() && GetParam().dtype != KvType::f32 && (GetParam().head_size == 64 || GetParam().head_size == 128);
  }
  // Threadgroups of that way that fit into 32 KiB, or into what NVIDIA's have.
  std::vector<metal::PrefillTiles> tried() const {
    const int64_t heads = GetParam().group % 2 == 0 ? 2 : 1;
    std::vector<metal::PrefillTiles> list;
    if (GetParam().head_size == 64) list = {{1, 32, 1, 1}, {2, 32, heads, 2}};
    if (GetParam().isa == "cuda")
      for (const int64_t rows : {16, 32})
        for (const int64_t simdgroups : {4, 8})
          list.push_back({simdgroups, simdgroups * rows, heads, rows == 16 ? 4 : 2});
    return list;
  }
  int64_t out_width() const { return GetParam().group * GetParam().kv_heads * GetParam().head_size; }

  // The sequence alone, in one prefill.
  std::vector<float> alone(const std::vector<TestSequence>& sequences, int threads = 2) const {
    const auto backend = device(threads);
    AttentionRig rig(*backend, config());
    return rig.step(sequences, {{0, 0, kLength, false}});
  }

  // Rows [0, from) at once, the rest in chunks, each row a decode row or each chunk a prefill, with neighbours in every
  // step. `fillers` run once before, so that decoding neighbours have a past.
  std::vector<float> chunked(const std::vector<TestSequence>& sequences, int32_t from, int32_t chunk, bool decode,
                             const std::vector<AttentionRig::Piece>& before = {},
                             const std::vector<AttentionRig::Piece>& after = {},
                             const std::vector<AttentionRig::Piece>& fillers = {}) const {
    const auto backend = device(2);
    AttentionRig rig(*backend, config());
    for (const AttentionRig::Piece& piece : fillers) rig.step(sequences, {piece});
    std::vector<float> all;
    if (from > 0) all = rig.step(sequences, {{0, 0, from, false}});
    for (int32_t first = from; first < kLength; first += chunk) {
      const int32_t count = std::min(chunk, kLength - first);
      std::vector<AttentionRig::Piece> pieces = before;
      pieces.push_back({0, first, count, decode});
      pieces.insert(pieces.end(), after.begin(), after.end());
      const std::vector<float> out = rig.step(sequences, pieces);
      const auto begin = out.begin() + static_cast<int64_t>(before.size()) * out_width();
      all.insert(all.end(), begin, begin + count * out_width());
    }
    return all;
  }

  void expect_no_future() const;
  void expect_forgetting() const;
  void expect_same(const std::vector<float>& got, const std::vector<float>& want, const char* what) const {
    ASSERT_EQ(got.size(), want.size());
    if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) return;
    for (size_t i = 0; i < got.size(); ++i)
      if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
        ADD_FAILURE() << what << ": row " << static_cast<int64_t>(i) / out_width() << " differs at "
                      << static_cast<int64_t>(i) % out_width() << ": " << got[i] << " instead of " << want[i];
        return;
      }
  }
};

TEST_P(AttentionInvariance, PrefillChunks) {
  const auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  EXPECT_TRUE(std::all_of(want.begin(), want.end(), [](float x) { return std::isfinite(x); }));
  expect_same(chunked(sequences, late(), 1, false), want, "prefill row by row");
  expect_same(chunked(sequences, 440, 7, false), want, "prefill chunks");
  for (int32_t chunk : {64, 200}) expect_same(chunked(sequences, 0, chunk, false), want, "prefill chunks");
}

TEST_P(AttentionInvariance, DecodeEqualsPrefill) {
  const auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  // Over the ends of tiles and splits.
  expect_same(chunked(sequences, late(), 1, true), want, "decode");
  if (GetParam().head_size == 64 && (GetParam().isa != "metal" || soak()))
    expect_same(chunked(sequences, 0, 1, true), want, "decode from the start");
}

// A GPU's threadgroups take spans, splits or whole sequences, as there is work.
TEST_P(AttentionInvariance, Cuts) {
  if (!gpu()) GTEST_SKIP() << "of GPUs only";
  const auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  for (const auto cut : {metal::AttentionCut::spans, metal::AttentionCut::splits, metal::AttentionCut::whole}) {
    metal::tried_cut = cut;
    expect_same(chunked(sequences, 505, 1, true), want, "decode");
  }
  metal::tried_cut.reset();
}

// Its simdgroups have rows of their own, or share keys, values and dims of all rows, or keys and values: all others but
// one are NVIDIA's ways, and newer ones have one more of their own.
TEST_P(AttentionInvariance, PrefillWays) {
  if (!gpu()) GTEST_SKIP() << "of GPUs only";
  const auto sequences = make_sequences(config(), {kLength});
  metal::tried_prefill = metal::PrefillWay::own_rows;
  const std::vector<float> want = alone(sequences);
  if (!cuda()) {  // where matrices are wider than the 8 columns that this way takes at a time, it is not taken
    metal::tried_prefill = metal::PrefillWay::shared;
    expect_same(alone(sequences), want, "shared");
  }
  if (tiled()) {
    metal::tried_prefill = metal::PrefillWay::tiles;
    expect_same(alone(sequences), want, "tiles");
    expect_same(chunked(sequences, 440, 7, false), want, "tiles, in chunks");
    for (const metal::PrefillTiles& tiles : tried()) {
      metal::tried_tiles = tiles;
      expect_same(alone(sequences), want, "other tiles");
    }
    metal::tried_tiles.reset();
  }
  metal::tried_prefill.reset();
  if (cuda()) expect_same(alone(sequences), want, "the GPU's own");
}

TEST_P(AttentionInvariance, Neighbours) {
  const auto sequences = make_sequences(config(), {kLength, 300, 17, 90, 260, 33, 5, 64, 1, 28, 65, 9, 40, 12, 15});
  const std::vector<float> want = alone(sequences);
  const size_t row_width = sequences[0].qkv.size() / kLength;
  std::vector<AttentionRig::Piece> decoding, fillers, prefilling;
  for (int s = 1; s < 15; ++s) {
    const int32_t length = static_cast<int32_t>(sequences[static_cast<size_t>(s)].qkv.size() / row_width);
    if (s < 8) {
      fillers.push_back({s, 0, length - 1, false});
      decoding.push_back({s, length - 1, 1, true});
    } else {
      prefilling.push_back({s, 0, length, false});
    }
  }
  expect_same(chunked(sequences, 0, 64, false, {}, prefilling), want, "prefill with neighbours");
  const int32_t from = std::max(late(), 490);
  expect_same(chunked(sequences, from, 1, true, decoding, {}, fillers), want, "decode with neighbours");
  expect_same(chunked(sequences, 505, 1, true, decoding, prefilling, fillers), want, "decode in mixed steps");
}

TEST_P(AttentionInvariance, BlockTables) {
  auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  std::sort(sequences[0].blocks.begin(), sequences[0].blocks.end());
  expect_same(alone(sequences), want, "sorted blocks");
  std::reverse(sequences[0].blocks.begin(), sequences[0].blocks.end());
  expect_same(alone(sequences), want, "reversed blocks");
}

TEST_P(AttentionInvariance, Threads) {
  if (gpu()) GTEST_SKIP() << "of CPUs only";
  const auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences, 1);
  for (int threads : {2, 5}) expect_same(alone(sequences, threads), want, "threads");
}

// What a row must not see cannot reach it, not even as NaN times zero: a later row of the same chunk is poisoned.
void AttentionInvariance::expect_no_future() const {
  auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  const int64_t width = static_cast<int64_t>(sequences[0].qkv.size()) / kLength;
  constexpr int32_t kPoisoned = 333;
  for (int64_t i = 0; i < width; ++i)
    sequences[0].qkv[static_cast<size_t>(kPoisoned * width + i)] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> got = alone(sequences);
  const size_t before = static_cast<size_t>(kPoisoned * out_width());
  EXPECT_TRUE(std::isnan(got[before]));
  got.resize(before);
  expect_same(got, {want.begin(), want.begin() + static_cast<int64_t>(before)}, "rows before the poisoned one");
}
TEST_P(AttentionInvariance, TheFutureDoesNotLeak) {
  expect_no_future();
  // NVIDIA's way elsewhere, too.
  metal::tried_prefill = metal::PrefillWay::tiles;
  if (tiled() && GetParam().isa == "metal") expect_no_future();
  metal::tried_prefill.reset();
}

// Nor can what a window has left behind, though its tile of keys is still read: all in one step, and row by row.
void AttentionInvariance::expect_forgetting() const {
  const int64_t window = GetParam().window;
  auto sequences = make_sequences(config(), {kLength});
  const std::vector<float> want = alone(sequences);
  const int64_t width = static_cast<int64_t>(sequences[0].qkv.size()) / kLength;
  // Rows that are decoded come with a window that begins in the middle of a tile of eight.
  const int64_t poisoned = late() + 6 - window, clean = poisoned + window;
  for (int64_t i = 0; i < width; ++i)
    sequences[0].qkv[static_cast<size_t>(poisoned * width + i)] = std::numeric_limits<float>::quiet_NaN();
  for (const bool decode : {false, true}) {
    const std::vector<float> got = decode ? chunked(sequences, late(), 1, true) : alone(sequences);
    EXPECT_TRUE(std::isnan(got[static_cast<size_t>((clean - 1) * out_width())])) << "the last row that sees it";
    const auto rows = [&](const std::vector<float>& all, int64_t first, int64_t last) {
      return std::vector<float>(all.begin() + first * out_width(), all.begin() + last * out_width());
    };
    expect_same(rows(got, clean, kLength), rows(want, clean, kLength), decode ? "decoded" : "in one step");
    expect_same(rows(got, 0, poisoned), rows(want, 0, poisoned), "rows before");
  }
}
TEST_P(AttentionInvariance, TheWindowForgets) {
  if (GetParam().window == 0) GTEST_SKIP() << "no window";
  expect_forgetting();
  metal::tried_prefill = metal::PrefillWay::tiles;
  if (tiled() && GetParam().isa == "metal") expect_forgetting();
  metal::tried_prefill.reset();
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionInvariance, testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.isa + "_" + std::string(kv_type_name(info.param.dtype)) + "_head" +
         std::to_string(info.param.head_size);
});

}  // namespace
}  // namespace ingot::test
