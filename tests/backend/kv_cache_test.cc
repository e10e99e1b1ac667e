#include "backend/cpu/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ingot::test {
namespace {

std::vector<std::byte> random_bytes(std::mt19937& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

// With `layers` 8 the blocks would be a power of two apart, and are moved.
class KvCacheLayout : public testing::TestWithParam<int64_t> {
 protected:
  KvCacheLayout() : cache_(layout()) {
    std::mt19937 random(5);
    for (int64_t half = 0; half < 2 * layout().layers; ++half) {
      halves_.push_back(random_bytes(random, layout().half_bytes()));
      cache_.write(half / 2, half % 2 == 1, halves_.back());
    }
  }
  static KvLayout layout() {
    return {.layers = GetParam(), .num_blocks = 5, .kv_heads = 2, .block_size = 16, .head_size = 64};
  }
  // What a block holds of one layer's K or V, as it was written.
  std::byte* written(int64_t half, int64_t block) {
    return halves_[static_cast<size_t>(half)].data() + static_cast<size_t>(block) * layout().block_bytes();
  }
  void expect_all() const {
    std::vector<std::byte> read(layout().half_bytes());
    for (size_t half = 0; half < halves_.size(); ++half) {
      cache_.read(static_cast<int64_t>(half) / 2, half % 2 == 1, read);
      EXPECT_TRUE(read == halves_[half]) << "layer " << half / 2 << (half % 2 == 1 ? ", values" : ", keys");
    }
  }

  cpu::KvCache cache_;
  std::vector<std::vector<std::byte>> halves_;  // [layers][K, V]
};

TEST_P(KvCacheLayout, WhatIsWrittenIsRead) {
  expect_all();
  // From a block to the next, and from a head to the next, as attention goes.
  const auto* base = cache_.head(0, true, 0, 0);
  EXPECT_EQ(cache_.head(0, true, 3, 1) - base, 2 * (3 * cache_.block_stride() + cache_.head_stride()));
  EXPECT_NE(2 * cache_.block_stride() % (64 << 10), 0);
}

TEST_P(KvCacheLayout, BlocksMoveAlone) {
  const size_t bytes = layout().block_bytes();
  const int64_t layer = layout().layers - 1;
  cache_.zero_block(layer, 1);
  cache_.copy_block(0, 2, 4);
  for (int64_t half : {2 * layer, 2 * layer + 1}) std::fill_n(written(half, 1), bytes, std::byte{0});
  for (int64_t half : {0, 1}) std::copy_n(written(half, 2), bytes, written(half, 4));
  expect_all();

  std::vector<std::byte> host(2 * static_cast<size_t>(layout().layers) * bytes);
  cache_.save_block(0, 3, host.data());
  cache_.load_block(0, host.data(), 0);
  for (int64_t half : {0, 1}) std::copy_n(written(half, 3), bytes, written(half, 0));
  expect_all();
}

INSTANTIATE_TEST_SUITE_P(Layers, KvCacheLayout, testing::Values(3, 8));

}  // namespace
}  // namespace ingot::test
