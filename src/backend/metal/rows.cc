#include "backend/metal/ops.h"

namespace ingot::metal {

namespace {

// The rows of `in`, [tokens, dim], that are named at `which`, `count` of them, `width` words apart in `out`.
void gather(Context& context, Region in, int64_t dim, size_t which, int64_t count, BufferView out, int64_t width) {
  Encoder& encoder = context.encoder;
  encoder.use("gather_rows");
  encoder.read(0, context.words(in, context.step.tokens * dim));
  encoder.read(1, context.staged(which));
  encoder.write(2, out);
  encoder.value(3, GatherRowsParams{.dim = static_cast<uint32_t>(dim), .width = static_cast<uint32_t>(width)});
  encoder.dispatch({groups_of(dim, kRowThreads), static_cast<NS::UInteger>(count), 1}, {kRowThreads, 1, 1});
}

}  // namespace

void encode(const GatherRowsOp& op, Context& context) {
  const StagedStep& step = context.step;
  gather(context, op.in, op.dim, step.sample_rows, step.samples, context.words(op.out, step.samples * op.dim), op.dim);
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
  const BufferView out = {context.output.get(), context.states + static_cast<size_t>(op.column) * 4,
                          static_cast<size_t>(step.states * context.state_width - op.column) * 4};
  gather(context, op.in, op.dim, step.state_rows, step.states, out, context.state_width);
}

}  // namespace ingot::metal
