#include "backend/metal/ops.h"

namespace ingot::metal {

void encode(const GatherRowsOp& op, Context& context) {
  const StagedStep& step = context.step;
  Encoder& encoder = context.encoder;
  encoder.use("gather_rows");
  encoder.read(0, context.words(op.in, step.tokens * op.dim));
  encoder.read(1, context.staged(step.sample_rows));
  encoder.write(2, context.words(op.out, step.samples * op.dim));
  encoder.value(3, GatherRowsParams{.dim = static_cast<uint32_t>(op.dim), .width = static_cast<uint32_t>(op.dim)});
  encoder.dispatch({groups_of(op.dim, kRowThreads), static_cast<NS::UInteger>(step.samples), 1}, {kRowThreads, 1, 1});
}

void encode(const TakeStatesOp& op, Context& context) {
  const StagedStep& step = context.step;
  const int64_t words = step.tokens * op.dim;
  Encoder& encoder = context.encoder;
  encoder.use("copy_words");
  BufferView in = context.staged(op.embedded ? step.embedded : step.given);
  in.bytes = static_cast<size_t>(words) * 4;
  encoder.read(0, in);
  encoder.write(1, context.words(op.out, words));
  encoder.value(2, static_cast<uint32_t>(words));
  encoder.dispatch({groups_of(words, kRowThreads), 1, 1}, {kRowThreads, 1, 1});
}

void encode(const GiveStatesOp& op, Context& context) {
  const StagedStep& step = context.step;
  Encoder& encoder = context.encoder;
  encoder.use("gather_rows");
  encoder.read(0, context.words(op.in, step.tokens * op.dim));
  encoder.read(1, context.staged(step.state_rows));
  encoder.write(2, {context.output.get(), context.states + static_cast<size_t>(op.column) * 4,
                    static_cast<size_t>(step.states * context.state_width - op.column) * 4});
  encoder.value(
      3, GatherRowsParams{.dim = static_cast<uint32_t>(op.dim), .width = static_cast<uint32_t>(context.state_width)});
  encoder.dispatch({groups_of(op.dim, kRowThreads), static_cast<NS::UInteger>(step.states), 1}, {kRowThreads, 1, 1});
}

}  // namespace ingot::metal
