#include "backend/metal/ops.h"

namespace ingot::metal {

void encode(const RopeTableOp& op, Context& context) {
  const BufferView inv_freq = context.vector(op.inv_freq);
  const auto pairs = static_cast<uint32_t>(inv_freq.bytes / 4);
  const uint32_t count = static_cast<uint32_t>(context.step.tokens) * pairs;
  Encoder& encoder = context.encoder;
  encoder.use("rope_table");
  encoder.weight(0, inv_freq);
  encoder.read(1, context.staged(context.step.positions));
  encoder.write(2, context.words(op.out, int64_t{count} * 2));
  encoder.value(3, RopeTableParams{.pairs = pairs, .count = count, .factor = op.factor});
  encoder.dispatch({groups_of(count, kRowThreads), 1, 1}, {kRowThreads, 1, 1});
}

}  // namespace ingot::metal
