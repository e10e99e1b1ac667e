#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "ingot/step.h"

// What the device tests share: the devices, and a step put together by hand.
namespace ingot::test {

struct DeviceCase {
  std::string name;  // of letters, digits and underscores: part of the tests' names
  std::function<std::unique_ptr<Backend>()> make;
  std::function<std::string()> missing;  // why the device is not there; none, or an empty text, when it is
};
// For SetUp() of a suite.
#define INGOT_SKIP_MISSING_DEVICE(device) \
  if ((device).missing && !(device).missing().empty()) GTEST_SKIP() << (device).missing()
// Every device of this build. A new device is one more entry here.
const std::vector<DeviceCase>& devices();
// Those whose attention and sampling differ: several instruction sets of the CPU share these kernels.
const std::vector<DeviceCase>& attention_devices();
// The CPU's part of the same, by name of the instruction set.
std::vector<std::string> attention_isas();
inline std::string device_name(const DeviceCase& device) { return device.name; }
inline void PrintTo(const DeviceCase& device, std::ostream* out) { *out << device.name; }

// A step in vectors, which nobody checks; stage() lays it out in a device's buffer.
struct TestStep {
  int ring = 0;
  int64_t slots_per_block = 16;
  int32_t decode_rows = 0;
  std::vector<int32_t> token_ids, positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> query_start = {0};
  std::vector<std::vector<int32_t>> blocks;  // of each sequence
  std::vector<int32_t> seq_lens;
  std::vector<BlockCopy> saves, loads, copies;
  std::vector<int32_t> zeros;
  std::vector<SamplerReset> resets;
  std::vector<int32_t> sample_rows;
  std::vector<SamplingParams> sampling;
  std::vector<int32_t> sampler_slot;
  std::vector<RowOutput> output;
  std::vector<int32_t> sample_positions;     // of the tokens to be drawn
  std::vector<std::vector<uint32_t>> masks;  // of each sampled row; empty: none

  // Rows [first, first + count) of a sequence that lives in `blocks`.
  void add_rows(const std::vector<int32_t>& sequence_blocks, int64_t block_size, int32_t first, int32_t count,
                bool decode);
  void add_sample(int32_t row, const SamplingParams& params, RowOutput wanted = {}, int32_t slot = -1);

  StagedStep stage(Backend& backend) const;

 private:
  Step to_step() const;
};

// Stages, rehearses, encodes, submits and waits.
void run_step(Backend& backend, const TestStep& step, const std::function<void()>& operations);

std::vector<float> random_floats(std::mt19937& random, size_t n, float scale = 1.0f);

// Activations in scratch, as floats whatever the device keeps them in.
void put(Backend& backend, Region region, std::span<const float> values, bool f32 = false);
std::vector<float> get(Backend& backend, Region region, size_t n, bool f32 = false);

// Takes consecutive regions of scratch.
class RegionPlan {
 public:
  Region take(size_t floats) {
    Region region{next_, (floats * 4 + 63) / 64 * 64};
    next_ += region.bytes;
    return region;
  }
  size_t bytes() const { return next_; }

 private:
  size_t next_ = 0;
};

}  // namespace ingot::test
