#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "harness.h"
#include "reference.h"
#include "soak.h"

// What the tests of every operation of every device share: the device, the reference in double precision beside it.
namespace ingot::test {

// Error allowed for numbers of size 1: the accumulated rounding of float arithmetic, or of a 16-bit activation.
inline double tolerance(const Backend& backend, double f32) {
  switch (backend.info().activation) {
    case DType::f16: return std::max(f32, 4e-3);
    case DType::bf16: return std::max(f32, 3e-2);
    default: return f32;
  }
}

inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, double limit,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0.0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    const double error =
        std::abs(static_cast<double>(got[i]) - want[i]) / std::max(1.0, std::abs(static_cast<double>(want[i])));
    if (!(error <= worst)) {
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      where = i;
    }
  }
  EXPECT_LE(worst, limit) << what << ": element " << where << " is " << got[where] << ", not " << want[where];
}

class Conformance : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    INGOT_SKIP_MISSING_DEVICE(GetParam());
    device_ = GetParam().make();
    reference_ = std::make_unique<ReferenceBackend>();
  }

  bool metal() const { return device_->info().name == "metal"; }
  bool bf16() const { return device_->info().activation == DType::bf16; }
  // Each makes kernels of its own, which take long to compile. On the software device the first `n` of them will do,
  // with a sanitizer the very first; those listed first are chosen so that over all tests each value occurs.
  template <typename T>
  std::vector<T> few(size_t n, std::vector<T> list) const {
    if (metal() && kSanitized) n = 1;
    if (metal() && !soak() && list.size() > n) list.resize(n);
    return list;
  }

  // Runs the same calls on the device and on the reference.
  template <typename F>
  void both(F&& f) {
    f(*device_);
    f(*reference_);
  }
  void run(const TestStep& step, const std::function<void(Backend&)>& operations) {
    both([&](Backend& backend) { run_step(backend, step, [&] { operations(backend); }); });
  }
  void compare(Region region, size_t n, double limit, const std::string& what, bool f32 = false) {
    expect_near(get(*device_, region, n, f32), get(*reference_, region, n), limit, what);
  }

  std::mt19937 random_{42};
  std::unique_ptr<Backend> device_;
  std::unique_ptr<ReferenceBackend> reference_;
};

}  // namespace ingot::test
