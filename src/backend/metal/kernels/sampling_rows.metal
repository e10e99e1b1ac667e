// The outputs of sampled rows: a token, its probability and rank, the most likely ones.
#include "sampling_draw.h"

// The largest value of a row and the lowest id that has it; `nan` when one is among them.
static uint2 sample_largest(device const float* values, uint vocab, threadgroup SampleShared& s,
                            SampleThread t, thread bool& nan) {
  uint best = 0, id = ~0u, bad = 0;
  for (uint i = t.index; i < vocab; i += kSampleThreads) {
    const float value = values[i];
    const uint key = sample_key(value);
    bad |= sample_is_nan(value) ? 1 : 0;
    if (key > best) {
      best = key;
      id = i;
    }
  }
  const uint most = simd_max(best);
  id = simd_min(best == most ? id : ~0u);
  bad = simd_max(bad);
  if (t.lane == 0) {
    s.keys[t.simdgroup] = most;
    s.ids[t.simdgroup] = id;
    s.nans[t.simdgroup] = bad;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best = 0;
  id = ~0u;
  for (uint i = 0; i < kSampleSimdgroups; ++i) {
    bad |= s.nans[i];
    if (s.keys[i] > best || (s.keys[i] == best && s.ids[i] < id)) {
      best = s.keys[i];
      id = s.ids[i];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  nan = bad != 0;
  return uint2(best, id);
}

// The `count` largest raw logits, largest first, ties to the lower id; `shift.x` and then `shift.y` are taken off.
static void sample_top(device const float* logits, uint vocab, uint count, float2 shift, device int* ids, device float* values,
                       threadgroup SampleShared& s, SampleThread t) {
  const SampleCut cut = sample_select_count(logits, vocab, count, s, t);
  const uint share = (vocab + kSampleThreads - 1) / kSampleThreads;
  const uint begin = min(t.index * share, vocab), end = min(begin + share, vocab);
  uint ties = sample_ties_before(logits, cut.key, begin, end, s, t);
  if (t.index == 0) atomic_store_explicit(&s.found, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = begin; i < end; ++i) {
    const uint key = sample_key(logits[i]);
    uint at = ~0u;
    if (key > cut.key) at = atomic_fetch_add_explicit(&s.found, 1u, memory_order_relaxed);
    if (key == cut.key && ties++ < cut.ties) at = uint(cut.above) + ties - 1;
    if (at >= count) continue;
    s.top_keys[at] = key;
    s.top_ids[at] = i;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t.index < count) {
    const uint key = s.top_keys[t.index], id = s.top_ids[t.index];
    uint place = 0;
    for (uint i = 0; i < count; ++i)
      place += s.top_keys[i] > key || (s.top_keys[i] == key && s.top_ids[i] < id) ? 1 : 0;
    const bool real = key > kKeyOfMinusInfinity;
    ids[place] = real ? int(id) : -1;
    values[place] = real ? (sample_value(key) - shift.x) - shift.y : as_type<float>(0xff800000u);
  }
}

// Fills the outputs of one row. One threadgroup a row.
[[kernel]] void sample_rows(device const float* logits [[buffer(0)]],  // [R, vocab]
                            device const SampleParams* params [[buffer(1)]],
                            device const SampleChunk* chunks [[buffer(2)]],  // [R, chunks]
                            device const float* work [[buffer(3)]],          // [processed rows, vocab]
                            device const int2* counts [[buffer(4)]],         // [slots]
                            device uchar* output [[buffer(5)]],
                            device int* last_tokens [[buffer(6)]],
                            constant SampleOutput& layout [[buffer(7)]],
                            uint row [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup SampleShared s;
  const SampleThread t = {thread_index, lane, simdgroup};
  const uint vocab = layout.vocab;
  device const SampleParams& p = params[row];
  device const float* x = logits + ulong(row) * vocab;
  bool nan = false;
  uint2 largest = uint2(0, ~0u);
  for (uint c = 0; c < layout.chunks; ++c) {
    device const SampleChunk& chunk = chunks[row * layout.chunks + c];
    nan = nan || chunk.nan != 0;
    if (chunk.best_key > largest.x) largest = uint2(chunk.best_key, chunk.best_id);
  }

  int token = -1;
  if (sample_chooses(p.kind) && !nan) {
    device const float* values = x;
    uint2 most = largest;
    bool bad = false;
    if (sample_is_processed(p, counts)) {
      values = work + ulong(sample_work_row(params, counts, row)) * vocab;
      most = sample_largest(values, vocab, s, t, bad);
    }
    if (!bad) token = sample_choose(values, vocab, most, p, s, t);
  }
  if (p.kind == kKindScore) token = p.target;

  const float not_a_number = as_type<float>(0x7fc00000u);
  const bool finite = largest.x > kKeyOfMinusInfinity && largest.x < kKeyOfInfinity;
  float logprob = 0, log_sum = 0;
  uint rank = 0;
  if (sample_wants_logprob(p.kind)) {
    if (finite) {
      const float best = sample_value(largest.x);
      float sum = 0;
      for (uint c = 0; c < layout.chunks; ++c) {
        device const SampleChunk& chunk = chunks[row * layout.chunks + c];
        if (chunk.best_key > kKeyOfMinusInfinity)
          sum = fma(chunk.sum, precise::exp(sample_value(chunk.best_key) - best), sum);
      }
      log_sum = precise::log(sum);
    }
    logprob = not_a_number;
    if (!nan && token >= 0 && uint(token) < vocab) {
      const float logit = x[token];
      if (finite) logprob = (logit - sample_value(largest.x)) - log_sum;
      const uint key = sample_key(logit);
      ulong greater = 0;
      for (uint i = thread_index; i < vocab; i += kSampleThreads) greater += sample_key(x[i]) > key ? 1 : 0;
      rank = 1 + uint(sample_sum(greater, s, t));
    }
  }
  if (thread_index == 0) {
    ((device int*)(output + layout.tokens))[row] = token;
    ((device float*)(output + layout.logprobs))[row] = logprob;
    ((device int*)(output + layout.ranks))[row] = int(rank);
    last_tokens[layout.last_offset + row] = token;
  }

  if (p.kind == kKindToken || p.kind == kKindFullLogits) return;
  const uint count = min(min(uint(max(p.top, 0)), layout.max_top), vocab);
  if (count == 0) return;
  device int* ids = (device int*)(output + layout.top_ids) + ulong(row) * layout.max_top;
  device float* values = (device float*)(output + layout.top_values) + ulong(row) * layout.max_top;
  if (nan) {
    if (thread_index < count) {
      ids[thread_index] = -1;
      values[thread_index] = not_a_number;
    }
    return;
  }
  const float2 shift =
      sample_wants_logprob(p.kind) && finite ? float2(sample_value(largest.x), log_sum) : float2(0);
  sample_top(x, vocab, count, shift, ids, values, s, t);
}
