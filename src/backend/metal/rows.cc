#include "backend/metal/ops.h"

namespace ingot::metal {

void encode(const GatherRowsOp& op, Context& context) {
  const StagedStep& step = context.step;
  Encoder& encoder = context.encoder;
  encoder.use("gather_rows");
  encoder.read(0, context.words(op.in, step.tokens * op.dim));
  encoder.read(1, context.staged(step.sample_rows));
  encoder.write(2, context.words(op.out, step.samples * op.dim));
  encoder.value(3, GatherRowsParams{.dim = static_cast<uint32_t>(op.dim)});
  encoder.dispatch({groups_of(op.dim, kRowThreads), static_cast<NS::UInteger>(step.samples), 1}, {kRowThreads, 1, 1});
}

}  // namespace ingot::metal
