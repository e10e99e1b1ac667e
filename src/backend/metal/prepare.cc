#include "backend/metal/ops.h"

namespace ingot::metal {

void encode(const PrepareOp&, Context& context) {
  const StagedStep& step = context.step;
  Encoder& encoder = context.encoder;
  if (step.zeros + step.copies > 0) {
    const KvCache& cache = *context.cache;
    const auto words = static_cast<uint32_t>(cache.layout().block_bytes() / 16);
    const PrepareParams params{.zeros = static_cast<uint32_t>(step.zeros),
                               .copies = static_cast<uint32_t>(step.copies),
                               .words = words,
                               .v_offset = static_cast<uint32_t>(cache.layout().half_bytes() / 16)};
    for (int64_t layer = 0; layer < cache.layout().layers; ++layer) {
      encoder.use("prepare_blocks");
      encoder.update(0, cache.whole(layer));
      encoder.read(1, context.staged(step.block_zeros));
      encoder.read(2, context.staged(step.block_copies));
      encoder.value(3, params);
      encoder.dispatch({groups_of(words, kRowThreads), 2, 1}, {kRowThreads, 1, 1});
    }
  }
  if (context.sampler && step.resets > 0) context.sampler->reset_slots(context);
}

}  // namespace ingot::metal
