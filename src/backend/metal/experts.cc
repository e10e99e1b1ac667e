#include "backend/metal/ops.h"

namespace ingot::metal {
namespace {

constexpr int64_t kRouteSimdgroups = 4;
constexpr int64_t kRouteFewRows = 64;  // that one threadgroup routes and sorts

}  // namespace

void encode(const RouteOp& op, Context& context) {
  const ExpertRoute& r = op.route;
  const RouteParams params{.rows = static_cast<uint32_t>(r.rows),
                           .experts = static_cast<uint32_t>(r.experts),
                           .per_token = static_cast<uint32_t>(r.per_token),
                           .item_rows = static_cast<uint32_t>(expert_item_rows(r, context.family)),
                           .first = static_cast<uint32_t>(r.first),
                           .here = static_cast<uint32_t>(r.here())};
  Encoder& encoder = context.encoder;
  int64_t logits = 1;  // of a lane
  while (logits * 32 < r.experts) logits *= 2;
  const auto write_order = [&](uint32_t first) {
    encoder.write(first, context.words(r.order, r.pairs()));
    encoder.write(first + 1, context.words(r.places, r.pairs()));
    encoder.write(first + 2, context.words(r.starts, r.experts + 1));
    encoder.write(first + 3, context.words(r.items, r.item_words()));
  };
  const bool few = r.rows <= kRouteFewRows && r.pairs() <= kRouteFewPairs;
  encoder.use(few ? "route_few" : "route_rows",
              {Constant::b(kRouteNormalize, op.normalize), Constant::u(kRouteLogits, logits)});
  encoder.read(0, context.words(op.logits, r.rows * r.experts));
  encoder.write(1, context.words(r.ids, r.pairs()));
  encoder.write(2, context.words(r.weights, r.pairs()));
  encoder.value(3, params);
  if (few) {
    write_order(4);
    encoder.dispatch({1, 1, 1}, {kRouteFewThreads, 1, 1});
    return;
  }
  encoder.dispatch({groups_of(r.rows, kRouteSimdgroups), 1, 1}, {kRouteSimdgroups * 32, 1, 1});

  encoder.use("route_sort");
  encoder.read(0, context.words(r.ids, r.pairs()));
  write_order(1);
  encoder.value(5, params);
  encoder.dispatch({1, 1, 1}, {kSortThreads, 1, 1});
}

void encode(const ExpertSumOp& op, Context& context) {
  const ExpertRoute& r = op.route;
  Encoder& encoder = context.encoder;
  encoder.use("expert_sum");
  encoder.read(0, context.words(r.weights, r.pairs()));
  encoder.read(1, context.words(r.places, r.pairs()));
  encoder.read(2, context.words(op.in, r.pairs() * op.dim));
  encoder.update(3, context.words(op.out, r.rows * op.dim));
  encoder.value(4, ExpertSumParams{.dim = static_cast<uint32_t>(op.dim),
                                   .per_token = static_cast<uint32_t>(r.per_token),
                                   .experts = static_cast<uint32_t>(r.experts),
                                   .first = static_cast<uint32_t>(r.first),
                                   .here = static_cast<uint32_t>(r.here()),
                                   .accumulate = op.accumulate});
  encoder.read(5, context.words(r.ids, r.pairs()));
  encoder.dispatch({groups_of(op.dim, kRowThreads), static_cast<NS::UInteger>(r.rows), 1}, {kRowThreads, 1, 1});
}

}  // namespace ingot::metal
