// Mixtures of experts: which experts a row goes to, the order of the pairs (a row and one of its experts), and the sum of
// what a row's experts give. The products themselves are in linear.metal.
#include "common.h"

constant bool ROUTE_NORMALIZE [[function_constant(kRouteNormalize)]];  // a row's weights are scaled to sum to 1
constant uint ROUTE_LOGITS [[function_constant(kRouteLogits)]];        // of a lane: experts / 32, rounded up to 1, 2, 4, 8 or 16

#define ROUTE_UNROLL _Pragma("clang loop unroll(full)")

// Items of an expert with so many pairs; none of an expert that another rank has.
METAL_FUNC uint route_items(constant RouteParams& p, uint expert, uint pairs) {
  return expert - p.first < p.here ? (pairs + p.item_rows - 1) / p.item_rows : 0;
}

// A simdgroup chooses for one row: softmax, then the largest, one after another; of equal ones the first. Numbers that are
// not negative compare like their bits, and integers are compared faster across lanes.
METAL_FUNC void route_row(device const float* logits, device int* ids, device float* weights,
                          threadgroup int* chosen_ids, constant RouteParams& p, uint row, uint lane) {
  float values[16];
  float largest = -3e38f;
  ROUTE_UNROLL for (uint i = 0; i < ROUTE_LOGITS; ++i) {
    const uint expert = i * 32 + lane;
    values[i] = expert < p.experts ? logits[ulong(row) * p.experts + expert] : -3e38f;
    largest = max(largest, values[i]);
  }
  largest = simd_max(largest);
  float sum = 0;
  uint keys[16];  // of what is left: bits of the value, plus one; 0: taken
  ROUTE_UNROLL for (uint i = 0; i < ROUTE_LOGITS; ++i) {
    const bool exists = i * 32 + lane < p.experts;
    const float value = exists ? precise::exp(values[i] - largest) : 0.0f;
    keys[i] = exists ? as_type<uint>(value) + 1 : 0;
    sum += value;
  }
  sum = simd_sum(sum);
  float chosen = 0;
  int my_expert = 0;  // lane l keeps choice l, so that all are written at once
  float my_value = 0;
  for (uint rank = 0; rank < p.per_token; ++rank) {
    uint best = 0, where = kMaxExperts;
    ROUTE_UNROLL for (uint i = 0; i < ROUTE_LOGITS; ++i) {
      if (keys[i] > best) {
        best = keys[i];
        where = i * 32 + lane;
      }
    }
    const uint top = simd_max(best);
    const uint expert = min(simd_min(best == top ? where : kMaxExperts), p.experts - 1);
    ROUTE_UNROLL for (uint i = 0; i < ROUTE_LOGITS; ++i)
      if (i * 32 + lane == expert) keys[i] = 0;
    const float value = as_type<float>(max(top, 1u) - 1);
    chosen += value;
    if (lane == rank) {
      my_expert = int(expert);
      my_value = value;
    }
  }
  if (lane < p.per_token) {
    const uint at = row * p.per_token + lane;
    ids[at] = my_expert;
    if (chosen_ids) chosen_ids[at] = my_expert;
    weights[at] = my_value / (ROUTE_NORMALIZE ? chosen : sum);
  }
}

[[kernel]] void route_rows(device const float* logits [[buffer(0)]],  // [rows, experts]
                           device int* ids [[buffer(1)]],             // [rows, per_token]
                           device float* weights [[buffer(2)]],       // [rows, per_token]
                           constant RouteParams& p [[buffer(3)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row = group * simdgroups + simdgroup;
  if (row < p.rows) route_row(logits, ids, weights, (threadgroup int*)nullptr, p, row, lane);
}

// Both in one threadgroup, for few rows: a simdgroup a row, then a thread an expert and a thread a pair.
[[kernel, max_total_threads_per_threadgroup(512)]] void route_few(
    device const float* logits [[buffer(0)]],  // [rows, experts]
    device int* ids [[buffer(1)]],             // [rows, per_token]
    device float* weights [[buffer(2)]],       // [rows, per_token]
    constant RouteParams& p [[buffer(3)]],
    device int* order [[buffer(4)]],           // [pairs]
    device int* places [[buffer(5)]],          // [pairs]
    device int* starts [[buffer(6)]],          // [experts + 1]
    device int* items [[buffer(7)]],           // count, then [expert, first place]
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup int pair_ids[kRouteFewPairs];
  threadgroup uint first_places[kMaxExperts];
  threadgroup uint2 simdgroup_sums[kRouteFewThreads / 32];
  const uint pairs = p.rows * p.per_token;
  for (uint row = simdgroup; row < p.rows; row += kRouteFewThreads / 32)
    route_row(logits, ids, weights, pair_ids, p, row, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  uint count = 0;
  if (thread_index < p.experts)
    for (uint i = 0; i < pairs; ++i) count += uint(pair_ids[i]) == thread_index ? 1 : 0;
  const uint item_count = route_items(p, thread_index, count);
  uint place = simd_prefix_exclusive_sum(count), item = simd_prefix_exclusive_sum(item_count);
  if (lane == 31) simdgroup_sums[simdgroup] = uint2(place + count, item + item_count);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < simdgroup; ++s) {
    place += simdgroup_sums[s].x;
    item += simdgroup_sums[s].y;
  }
  if (thread_index < p.experts) {
    first_places[thread_index] = place;
    starts[thread_index] = int(place);
    for (uint i = 0; i < item_count; ++i) {
      items[1 + 2 * (item + i)] = int(thread_index);
      items[2 + 2 * (item + i)] = int(place + i * p.item_rows);
    }
    if (thread_index == p.experts - 1) {
      starts[p.experts] = int(place + count);
      items[0] = int(item + item_count);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index < pairs) {
    const int expert = pair_ids[thread_index];
    uint at = first_places[expert];
    for (uint i = 0; i < thread_index; ++i) at += pair_ids[i] == expert ? 1 : 0;
    order[at] = int(thread_index);
    places[thread_index] = int(at);
  }
}

// One threadgroup. Every thread walks all pairs for its experts, in order: the result is the same however it runs.
[[kernel]] void route_sort(device const int* ids [[buffer(0)]],  // [pairs]
                           device int* order [[buffer(1)]],      // [pairs]
                           device int* places [[buffer(2)]],     // [pairs]
                           device int* starts [[buffer(3)]],     // [experts + 1]
                           device int* items [[buffer(4)]],      // count, then [expert, first place]
                           constant RouteParams& p [[buffer(5)]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup uint counts[kMaxExperts], item_counts[kMaxExperts];
  const uint pairs = p.rows * p.per_token;
  for (uint expert = thread_index; expert < p.experts; expert += kSortThreads) {
    uint count = 0;
    for (uint i = 0; i < pairs; ++i) count += uint(ids[i]) == expert ? 1 : 0;
    counts[expert] = count;
    item_counts[expert] = route_items(p, expert, count);
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

// out[row, :] = the experts' rows, or out += that: a group's are added best first, then the groups two by two, so that
// ranks which have some of the groups each find the same sums.
[[kernel]] void expert_sum(device const float* weights [[buffer(0)]],  // [rows, per_token]
                           device const int* places [[buffer(1)]],     // [rows, per_token]
                           device const float* in [[buffer(2)]],       // [pairs, dim]
                           device float* out [[buffer(3)]],            // [rows, dim]
                           constant ExpertSumParams& p [[buffer(4)]],
                           device const int* ids [[buffer(5)]],        // [rows, per_token]
                           uint2 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint i = group.x * kRowThreads + thread_index, row = group.y;
  if (i >= p.dim) return;
  const uint first_group = p.first * kExpertGroups / p.experts;
  float4 sums = float4(0.0f);
  for (uint first = 0; first < p.per_token; first += 8) {
    float values[8];  // all loads are issued before the first use
    uint groups[8];   // kExpertGroups: of another rank
    ROUTE_UNROLL for (uint j = 0; j < 8; ++j) {
      const uint pair = row * p.per_token + min(first + j, p.per_token - 1), expert = uint(ids[pair]);
      const bool here = first + j < p.per_token && expert - p.first < p.here;
      groups[j] = here ? expert * kExpertGroups / p.experts - first_group : kExpertGroups;
      values[j] = here ? in[ulong(uint(places[pair])) * p.dim + i] : 0.0f;
    }
    ROUTE_UNROLL for (uint j = 0; j < 8; ++j) {
      const float weight = groups[j] < kExpertGroups ? weights[row * p.per_token + first + j] : 0.0f;
      ROUTE_UNROLL for (uint g = 0; g < kExpertGroups; ++g)
        if (groups[j] == g) sums[g] = fma(weight, values[j], sums[g]);
    }
  }
  const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  device float* to = out + ulong(row) * p.dim + i;
  *to = p.accumulate != 0 ? *to + sum : sum;
}
