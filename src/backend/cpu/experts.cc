#include "backend/cpu/experts.h"

#include <algorithm>
#include <cmath>

namespace ingot::cpu {
namespace {

constexpr float kTaken = -1.0f;  // below any probability

void route_row(const RouteCall& call, int64_t row) {
  float* p = call.logits + row * call.experts;
  const float largest = *std::max_element(p, p + call.experts);
  float sum = 0;
  for (int64_t e = 0; e < call.experts; ++e) sum += p[e] = std::exp(p[e] - largest);
  float chosen = 0;
  for (int64_t rank = 0; rank < call.per_token; ++rank) {
    // Of equal ones the first; a row of NaN goes to experts that exist all the same.
    int64_t best = 0;
    for (int64_t e = 0; e < call.experts; ++e)
      if (p[e] > p[best]) best = e;
    call.ids[row * call.per_token + rank] = static_cast<int32_t>(best);
    call.weights[row * call.per_token + rank] = p[best];
    chosen += p[best];
    p[best] = kTaken;
  }
  const float scale = 1 / (call.normalize ? chosen : sum);
  for (int64_t rank = 0; rank < call.per_token; ++rank) call.weights[row * call.per_token + rank] *= scale;
}

// A counting sort: by expert, then by number of the pair.
void sort_pairs(const RouteCall& call) {
  const int64_t pairs = call.rows * call.per_token;
  std::fill_n(call.starts, call.experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++call.starts[call.ids[i] + 1];
  for (int64_t e = 0; e < call.experts; ++e) call.starts[e + 1] += call.starts[e];
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t place = call.starts[call.ids[i]]++;  // becomes the next expert's start
    call.places[i] = place;
    call.order[place] = static_cast<int32_t>(i);
  }
  std::copy_backward(call.starts, call.starts + call.experts, call.starts + call.experts + 1);
  call.starts[0] = 0;
}

}  // namespace

void route(const RouteCall& call, Worker& worker) {
  worker.share(call.rows, [&](int64_t row) { route_row(call, row); });
  if (worker.index() == 0) sort_pairs(call);
  worker.sync();
}

void expert_sum(const ExpertSumCall& call, Worker& worker) {
  worker.share(call.rows, [&](int64_t row) {
    float* out = call.out + row * call.dim;
    for (int64_t rank = 0; rank < call.per_token; ++rank) {
      const int64_t pair = row * call.per_token + rank;
      const float weight = call.weights[pair];
      const float* in = call.in + call.places[pair] * call.dim;
      for (int64_t i = 0; i < call.dim; ++i) out[i] += weight * in[i];
    }
  });
}

}  // namespace ingot::cpu
