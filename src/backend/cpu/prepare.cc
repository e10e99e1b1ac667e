#include "backend/cpu/ops.h"

#include <chrono>

namespace ingot::cpu {

void run(const PrepareOp&, const Job& job) {
  const StepView& view = job.step.view;
  const StagedStep& step = view.step();
  if (step.resets > 0 && job.device.sampler) job.worker.once([&] { job.device.sampler->reset_slots(view); });
  if (step.saves + step.loads + step.zeros + step.copies == 0) return;
  // Copies may build on each other, so a layer's are done in order; layers are independent.
  KvCache& cache = *job.device.cache;
  const size_t block_bytes = 2 * static_cast<size_t>(cache.layout().layers) * cache.layout().block_bytes();
  const auto host = [&](int32_t block) {
    return job.device.host_blocks.data() + static_cast<size_t>(block) * block_bytes;
  };
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  job.worker.share(cache.layout().layers, [&](int64_t layer) {
    for (int32_t i = 0; i < step.saves; ++i)
      cache.save_block(layer, view.block_saves()[2 * i], host(view.block_saves()[2 * i + 1]));
    for (int32_t i = 0; i < step.loads; ++i)
      cache.load_block(layer, host(view.block_loads()[2 * i]), view.block_loads()[2 * i + 1]);
    for (int32_t i = 0; i < step.zeros; ++i) cache.zero_block(layer, view.block_zeros()[i]);
    for (int32_t i = 0; i < step.copies; ++i)
      cache.copy_block(layer, view.block_copies()[2 * i], view.block_copies()[2 * i + 1]);
  });
  if (job.worker.index() == 0 && step.saves + step.loads > 0)
    job.step.times.move_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace ingot::cpu
