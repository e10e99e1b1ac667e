#include "core/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "core/error.h"

namespace ingot {
namespace {

uint64_t sum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Checksum, EveryBitCounts) {
  std::vector<std::byte> bytes = random_bytes(4 * Checksum::kUnit);
  std::set<uint64_t> sums{sum_of(bytes)};
  for (std::byte& b : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      b ^= static_cast<std::byte>(1 << bit);
      EXPECT_TRUE(sums.insert(sum_of(bytes)).second);
      b ^= static_cast<std::byte>(1 << bit);
    }
}

// Zeros where there was something, pages that changed places, bytes that are lacking.
TEST(Checksum, ShowsWhatDisksDo) {
  const std::vector<std::byte> bytes = random_bytes(3 * 4096);
  const uint64_t good = sum_of(bytes);
  std::vector<std::byte> zeroed = bytes;
  std::fill_n(zeroed.begin() + 4096, 4096, std::byte{0});
  EXPECT_NE(sum_of(zeroed), good);
  std::vector<std::byte> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 4096, swapped.begin() + 8192);
  EXPECT_NE(sum_of(swapped), good);
  EXPECT_NE(sum_of(std::span(bytes).first(2 * 4096)), good);
  const std::vector<std::byte> zeros(8192);
  EXPECT_NE(sum_of(zeros), sum_of(std::span(zeros).first(4096)));
}

TEST(Checksum, DoesNotDependOnHowItIsCut) {
  const std::vector<std::byte> bytes = random_bytes(20 * Checksum::kUnit);
  Checksum sum;
  sum.add(std::span(bytes).first(7 * Checksum::kUnit));
  sum.add({});
  sum.add(std::span(bytes).subspan(7 * Checksum::kUnit));
  EXPECT_EQ(sum.value(), sum_of(bytes));
  EXPECT_THROW(sum.add(std::span(bytes).first(63)), Error);
}

}  // namespace
}  // namespace ingot
