#include <algorithm>

#include "backend/metal/linear/plan.h"
#include "backend/metal/ops.h"

namespace ingot::metal {

int64_t expert_item_rows(const ExpertRoute& route, int family) {
  int64_t rows = 1;
  while (rows < route.rows) rows *= 2;
  // The share of an expert, when all are chosen alike. The matrix unit takes eight at once; from 32 on they are a tile.
  const int64_t share = rows * route.per_token / route.experts;
  if (share <= 8) return 8;
  if (share < 32) return 16;
  if (share < 64) return 32;
  return share < 128 || family != kNvidiaFamily ? 64 : 128;
}

void encode(const ExpertLinearOp& op, Context& context) {
  const ExpertRoute& route = op.route;
  const PackedMatrix& weight = context.matrix(op.weight);
  const PackedMatrix* up = op.up ? &context.matrix(op.up) : nullptr;
  const int64_t pairs = route.pairs(), outputs = weight.rows / route.here();
  LinearShape shape;
  shape.rows = pairs;
  shape.in = context.activation;
  shape.experts = route.here();
  shape.first_expert = route.first;
  shape.item_rows = expert_item_rows(route, context.family);
  shape.items = std::min(pairs, std::min(route.here(), pairs) + pairs / shape.item_rows);
  shape.outputs = shape.out_stride = outputs;
  shape.out = DType::f32;
  if (up != nullptr) {
    shape.per_token = route.per_token;
    shape.activation = op.activation;
    shape.out = context.activation;
  }
  // Which experts have rows is known on the GPU alone: at most as many as there are pairs.
  context.times->weight_bytes += (weight.bytes + (up != nullptr ? up->bytes : 0)) / static_cast<size_t>(route.here()) *
                                 static_cast<size_t>(std::min(route.here(), pairs));
  // One segment each: check_matrix() takes experts of one format only.
  encode_product(
      context, shape,
      {.weight = &weight,
       .segment = &weight.segments[0],
       .up = up,
       .up_segment = up != nullptr ? &up->segments[0] : nullptr,
       .in = context.activations(op.in, (up != nullptr ? route.rows : pairs) * weight.cols),
       .out = up != nullptr ? context.activations(op.out, pairs * outputs) : context.words(op.out, pairs * outputs),
       .items = context.words(route.items, route.item_words()),
       .starts = context.words(route.starts, route.experts + 1),
       .order = context.words(route.order, pairs)});
}

}  // namespace ingot::metal
