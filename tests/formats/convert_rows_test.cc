#include "formats/convert_rows.h"

#include <gtest/gtest.h>

#include "core/half.h"
#include "core/threads.h"

namespace ingot {
namespace {

// Threads take about 65,536 elements at a time: fewer than that, several times that, and rows longer than that.
TEST(ConvertRows, EveryRowIsConvertedWhateverTheThreads) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 32}, {1000, 256}, {3, 131072}}) {
    std::vector<float> in(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 2039) - 1000;
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<uint16_t> out(in.size());
      convert_rows(DType::f32, reinterpret_cast<const std::byte*>(in.data()), DType::f16,
                   reinterpret_cast<std::byte*>(out.data()), rows, cols, pool);
      size_t wrong = 0;
      for (size_t i = 0; i < in.size(); ++i) wrong += out[i] != f32_to_f16(in[i]);
      EXPECT_EQ(wrong, 0u) << rows << " x " << cols << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace ingot
