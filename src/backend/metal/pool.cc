#include <algorithm>

#include "backend/metal/ops.h"

namespace ingot::metal {

static_assert(static_cast<uint32_t>(PoolOp::Kind::last) == pool_last &&
              static_cast<uint32_t>(PoolOp::Kind::mean) == pool_mean &&
              static_cast<uint32_t>(PoolOp::Kind::first) == pool_first);

void encode(const PoolOp& op, Context& context) {
  const StagedStep& step = context.step;
  Encoder& encoder = context.encoder;
  encoder.use("pool_rows",
              {Constant::u(kPoolKind, static_cast<int64_t>(op.kind)), Constant::b(kPoolNormalize, op.normalize)});
  encoder.read(0, context.words(op.in, step.tokens * op.dim));
  encoder.read(1, context.staged(step.pool));
  if (op.kind != PoolOp::Kind::last) encoder.update(2, context.words(op.kept, op.slots * op.dim));
  encoder.write(3, {context.output.get(), context.pooled, static_cast<size_t>(op.sequences * op.dim) * 4});
  encoder.value(4, PoolParams{.dim = static_cast<uint32_t>(op.dim), .pooled = static_cast<uint32_t>(op.pooled)});
  // By the dimension alone: so is the order in which squares are added.
  const auto simdgroups = std::min<NS::UInteger>(groups_of(op.dim, 32), 32);
  encoder.dispatch({static_cast<NS::UInteger>(op.sequences), 1, 1}, {simdgroups * 32, 1, 1});
}

}  // namespace ingot::metal
