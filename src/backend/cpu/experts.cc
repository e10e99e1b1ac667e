#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"

// Which experts each row of a step goes to, and the sum of what they give.
namespace ingot::cpu {
namespace {

constexpr float kTaken = -1.0f;  // below any probability

// `p`: the row's logits, used up.
void route_row(const RouteOp& op, float* p, int32_t* ids, float* weights) {
  const int64_t experts = op.route.experts, per_token = op.route.per_token;
  const float largest = *std::max_element(p, p + experts);
  float sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += p[e] = std::exp(p[e] - largest);
  float chosen = 0;
  for (int64_t rank = 0; rank < per_token; ++rank) {
    // Of equal ones the first; a row of NaN goes to experts that exist all the same.
    int64_t best = 0;
    for (int64_t e = 0; e < experts; ++e)
      if (p[e] > p[best]) best = e;
    ids[rank] = static_cast<int32_t>(best);
    weights[rank] = p[best];
    chosen += p[best];
    p[best] = kTaken;
  }
  const float scale = 1 / (op.normalize ? chosen : sum);
  for (int64_t rank = 0; rank < per_token; ++rank) weights[rank] *= scale;
}

// A counting sort: by expert, then by number of the pair.
void sort_pairs(const ExpertRoute& route, const Context& device) {
  const int32_t* ids = device.words(route.ids);
  int32_t *starts = device.words(route.starts), *places = device.words(route.places);
  std::fill_n(starts, route.experts + 1, 0);
  for (int64_t i = 0; i < route.pairs(); ++i) ++starts[ids[i] + 1];
  for (int64_t e = 0; e < route.experts; ++e) starts[e + 1] += starts[e];
  for (int64_t i = 0; i < route.pairs(); ++i) {
    places[i] = starts[ids[i]]++;  // becomes the next expert's start
    device.words(route.order)[places[i]] = static_cast<int32_t>(i);
  }
  std::copy_backward(starts, starts + route.experts, starts + route.experts + 1);
  starts[0] = 0;
}

}  // namespace

void run(const RouteOp& op, const Job& job) {
  const ExpertRoute& route = op.route;
  job.worker.share(route.rows, [&](int64_t row) {
    route_row(op, job.device.floats(op.logits) + row * route.experts,
              job.device.words(route.ids) + row * route.per_token,
              job.device.floats(route.weights) + row * route.per_token);
  });
  job.worker.sync();  // a worker that is late may look at where the experts of the layer before begin
  job.worker.once([&] { sort_pairs(route, job.device); });
}

void run(const ExpertSumOp& op, const Job& job) {
  constexpr int64_t kGroups = MatrixSpec::kMostSlices, kColumns = 256;  // at a time
  const ExpertRoute& route = op.route;
  const int64_t per_token = route.per_token, first_group = route.first * kGroups / route.experts;
  const float *weights = job.device.floats(op.route.weights), *all = job.device.floats(op.in);
  const int32_t *places = job.device.words(op.route.places), *ids = job.device.words(op.route.ids);
  job.worker.share(op.route.rows, [&](int64_t row) {
    float* out = job.device.floats(op.out) + row * op.dim;
    for (int64_t at = 0; at < op.dim; at += kColumns) {
      const int64_t n = std::min(kColumns, op.dim - at);
      float sums[kGroups][kColumns] = {};
      for (int64_t pair = row * per_token; pair < (row + 1) * per_token; ++pair) {
        const float weight = weights[pair];
        const float* in = all + places[pair] * op.dim + at;
        if (ids[pair] < route.first || ids[pair] >= route.first + route.here()) continue;
        float* sum = sums[ids[pair] * kGroups / route.experts - first_group];
        for (int64_t i = 0; i < n; ++i) sum[i] += weight * in[i];
      }
      for (int64_t i = 0; i < n; ++i) {
        const float sum = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
        out[at + i] = op.accumulate ? out[at + i] + sum : sum;
      }
    }
  });
}

}  // namespace ingot::cpu
