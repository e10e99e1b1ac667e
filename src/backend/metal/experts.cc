#include "backend/metal/linear/linear.h"
#include "backend/metal/ops.h"

namespace ingot::metal {
namespace {

// Function constants of kernels/experts.metal.
enum : uint16_t { kNormalize = 4, kLogits = 5 };

constexpr int64_t kRouteSimdgroups = 4;
constexpr int64_t kSortThreads = 256;
constexpr int64_t kFewThreads = 512, kFewRows = 64, kFewPairs = 512;  // of route_few
constexpr int64_t kSumThreads = 256;

}  // namespace

void route(Context& context, const RouteOp& op) {
  struct Params {
    uint32_t rows, experts, per_token, item_rows;
  };
  const ExpertRoute& r = op.route;
  const Params params{static_cast<uint32_t>(r.rows), static_cast<uint32_t>(r.experts),
                      static_cast<uint32_t>(r.per_token), static_cast<uint32_t>(expert_item_rows(r, context.family))};
  const size_t pairs = static_cast<size_t>(r.pairs());
  Encoder& encoder = context.encoder;
  int64_t logits = 1;  // of a lane
  while (logits * 32 < r.experts) logits *= 2;
  const bool few = r.rows <= kFewRows && r.pairs() <= kFewPairs;
  encoder.use(few ? "route_few" : "route_rows", {Constant::b(kNormalize, op.normalize), Constant::u(kLogits, logits)});
  encoder.read(0, context.region(op.logits, static_cast<size_t>(r.rows * r.experts) * 4));
  encoder.write(1, context.region(r.ids, pairs * 4));
  encoder.write(2, context.region(r.weights, pairs * 4));
  encoder.value(3, params);
  if (few) {
    encoder.write(4, context.region(r.order, pairs * 4));
    encoder.write(5, context.region(r.places, pairs * 4));
    encoder.write(6, context.region(r.starts, static_cast<size_t>(r.experts + 1) * 4));
    encoder.write(7, context.region(r.items, (2 * pairs + 1) * 4));
    encoder.dispatch({1, 1, 1}, {kFewThreads, 1, 1});
    return;
  }
  encoder.dispatch({static_cast<NS::UInteger>((r.rows + kRouteSimdgroups - 1) / kRouteSimdgroups), 1, 1},
                   {kRouteSimdgroups * 32, 1, 1});

  encoder.use("route_sort");
  encoder.read(0, context.region(r.ids, pairs * 4));
  encoder.write(1, context.region(r.order, pairs * 4));
  encoder.write(2, context.region(r.places, pairs * 4));
  encoder.write(3, context.region(r.starts, static_cast<size_t>(r.experts + 1) * 4));
  encoder.write(4, context.region(r.items, (2 * pairs + 1) * 4));
  encoder.value(5, params);
  encoder.dispatch({1, 1, 1}, {kSortThreads, 1, 1});
}

void expert_sum(Context& context, const ExpertSumOp& op) {
  struct Params {
    uint32_t dim, per_token;
  };
  const ExpertRoute& r = op.route;
  const size_t pairs = static_cast<size_t>(r.pairs());
  Encoder& encoder = context.encoder;
  encoder.use("expert_sum");
  encoder.read(0, context.region(r.weights, pairs * 4));
  encoder.read(1, context.region(r.places, pairs * 4));
  encoder.read(2, context.region(op.in, pairs * static_cast<size_t>(op.dim) * 4));
  encoder.update(3, context.region(op.out, static_cast<size_t>(r.rows * op.dim) * 4));
  encoder.value(4, Params{static_cast<uint32_t>(op.dim), static_cast<uint32_t>(r.per_token)});
  encoder.dispatch(
      {static_cast<NS::UInteger>((op.dim + kSumThreads - 1) / kSumThreads), static_cast<NS::UInteger>(r.rows), 1},
      {kSumThreads, 1, 1});
}

}  // namespace ingot::metal
