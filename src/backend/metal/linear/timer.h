#pragma once

#include <Metal/Metal.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "backend/counters.h"
#include "backend/metal/linear/tuner.h"

namespace ingot::metal {

struct Context;

struct TimerOptions {
  // Weights that products go through between two reads of the same ones: more than caches hold. Where a model has fewer
  // they are copied.
  size_t rotated_bytes = size_t{256} << 20;
  double least_us = 2000;  // of the products that are timed together
  int least_count = 16;    // of them
};

// Times products on the device, between steps: the model's own weights, of layer after layer, random inputs where steps
// have theirs, and outputs where steps leave theirs. No step is in flight, so nobody misses what is overwritten.
class ProductTimer final : public WayTimer {
 public:
  ProductTimer(Context& context, LinearChoices& choices, MTL::CommandQueue* queue, MTL::Fence* fence,
               DeviceCounters& counters, const TimerOptions& options = {})
      : context_(context), choices_(choices), queue_(queue), fence_(fence), counters_(counters), options_(options) {}

  void begin(const SeenProduct& product) override;
  std::vector<std::byte> result(const LinearWay& way) override;
  double time(const LinearWay& way) override;
  double memory_gb_s() override;
  void end() override;

 private:
  void fill_input();
  void fill_route();
  void copy_weights();
  void prepare(const LinearWay& way);
  // Microseconds of each of `count`.
  double run(const LinearWay& way, int count, bool clears);
  double run_commands(const std::function<void(MTL::CommandBuffer*)>& encode);
  void encode(const LinearWay& way, size_t turn);

  Context& context_;
  LinearChoices& choices_;
  MTL::CommandQueue* queue_;
  MTL::Fence* fence_;
  DeviceCounters& counters_;
  const TimerOptions options_;
  const SeenProduct* product_ = nullptr;
  std::vector<SeenProduct::Weights> weights_;  // what is gone through
  std::deque<PackedMatrix> copies_;            // of the model's, in room_
  BufferPtr room_;
};

}  // namespace ingot::metal
