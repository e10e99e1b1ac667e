// Mixtures of experts: which experts a row goes to, the order of the pairs (a row and one of its experts), and the sum of
// what a row's experts give. The products themselves are in linear.metal.
#include "common.h"

constant bool ROUTE_NORMALIZE [[function_constant(4)]];  // a row's weights are scaled to sum to 1

constant constexpr uint kRouteLogits = 16;   // of a lane
constant constexpr uint kRouteExperts = 512; // at most
constant constexpr uint kSortThreads = 256;

struct RouteParams {
  uint rows, experts, per_token;
  uint item_rows;  // most rows of an item
};

// One simdgroup a row: softmax, then the largest, one after another; of equal ones the first.
[[kernel]] void route_rows(device const float* logits [[buffer(0)]],  // [rows, experts]
                           device int* ids [[buffer(1)]],             // [rows, per_token]
                           device float* weights [[buffer(2)]],       // [rows, per_token]
                           constant RouteParams& p [[buffer(3)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row = group * simdgroups + simdgroup;
  if (row >= p.rows) return;
  float values[kRouteLogits];
  float largest = -3e38f;
  for (uint i = 0; i < kRouteLogits; ++i) {
    const uint expert = i * 32 + lane;
    values[i] = expert < p.experts ? logits[ulong(row) * p.experts + expert] : -3e38f;
    largest = max(largest, values[i]);
  }
  largest = simd_max(largest);
  float sum = 0;
  for (uint i = 0; i < kRouteLogits; ++i) {
    values[i] = i * 32 + lane < p.experts ? precise::exp(values[i] - largest) : -1.0f;
    sum += max(values[i], 0.0f);
  }
  sum = simd_sum(sum);
  float chosen = 0;
  for (uint rank = 0; rank < p.per_token; ++rank) {
    float best = -2.0f;
    uint where = kRouteExperts;
    for (uint i = 0; i < kRouteLogits; ++i) {
      if (values[i] > best) {
        best = values[i];
        where = i * 32 + lane;
      }
    }
    const float top = simd_max(best);
    const uint expert = min(simd_min(best == top ? where : kRouteExperts), p.experts - 1);
    for (uint i = 0; i < kRouteLogits; ++i)
      if (i * 32 + lane == expert) values[i] = -1.0f;
    chosen += top;
    if (lane == 0) {
      ids[row * p.per_token + rank] = int(expert);
      weights[row * p.per_token + rank] = top;
    }
  }
  const float scale = 1.0f / (ROUTE_NORMALIZE ? chosen : sum);
  if (lane == 0)
    for (uint rank = 0; rank < p.per_token; ++rank) weights[row * p.per_token + rank] *= scale;
}

// One threadgroup. Every thread walks all pairs for its experts, in order: the result is the same however it runs.
[[kernel]] void route_sort(device const int* ids [[buffer(0)]],  // [pairs]
                           device int* order [[buffer(1)]],      // [pairs]
                           device int* places [[buffer(2)]],     // [pairs]
                           device int* starts [[buffer(3)]],     // [experts + 1]
                           device int* items [[buffer(4)]],      // count, then [expert, first place]
                           constant RouteParams& p [[buffer(5)]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup uint counts[kRouteExperts], item_counts[kRouteExperts];
  const uint pairs = p.rows * p.per_token;
  for (uint expert = thread_index; expert < p.experts; expert += kSortThreads) {
    uint count = 0;
    for (uint i = 0; i < pairs; ++i) count += uint(ids[i]) == expert ? 1 : 0;
    counts[expert] = count;
    item_counts[expert] = (count + p.item_rows - 1) / p.item_rows;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint expert = thread_index; expert < p.experts; expert += kSortThreads) {
    uint place = 0, item = 0;
    for (uint e = 0; e < expert; ++e) {
      place += counts[e];
      item += item_counts[e];
    }
    starts[expert] = int(place);
    for (uint i = 0; i < item_counts[expert]; ++i) {
      items[1 + 2 * (item + i)] = int(expert);
      items[2 + 2 * (item + i)] = int(place + i * p.item_rows);
    }
    if (expert == p.experts - 1) {
      starts[p.experts] = int(place + counts[expert]);
      items[0] = int(item + item_counts[expert]);
    }
    if (counts[expert] > 0) {
      for (uint i = 0; i < pairs; ++i) {
        if (uint(ids[i]) == expert) {
          order[place] = int(i);
          places[i] = int(place);
          ++place;
        }
      }
    }
  }
}

struct ExpertSumParams {
  uint dim, per_token;
};

// out[row, :] += the experts' rows, best first.
[[kernel]] void expert_sum(device const float* weights [[buffer(0)]],  // [rows, per_token]
                           device const int* places [[buffer(1)]],     // [rows, per_token]
                           device const float* in [[buffer(2)]],       // [pairs, dim]
                           device float* out [[buffer(3)]],            // [rows, dim]
                           constant ExpertSumParams& p [[buffer(4)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint i = group.x * 256 + thread_index, row = group.y;
  if (i >= p.dim) return;
  float sum = out[ulong(row) * p.dim + i];
  for (uint rank = 0; rank < p.per_token; ++rank) {
    const uint pair = row * p.per_token + rank;
    sum = fma(weights[pair], in[ulong(uint(places[pair])) * p.dim + i], sum);
  }
  out[ulong(row) * p.dim + i] = sum;
}
