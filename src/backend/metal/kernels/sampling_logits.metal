// Logits before a token is chosen from them: statistics of the raw ones, and all that changes them.
#include "sampling.h"

// Largest logit, NaN and sum of exponentials of one chunk of one row; copies the chunk where the whole row is wanted.
[[kernel]] void sample_stats(device const float* logits [[buffer(0)]],  // [R, vocab]
                             device const SampleParams* params [[buffer(1)]],
                             device SampleChunk* chunks [[buffer(2)]],  // [R, chunks]
                             device uchar* output [[buffer(3)]],
                             constant SampleOutput& layout [[buffer(4)]],
                             uint2 group [[threadgroup_position_in_grid]],  // chunk, row
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint keys[kSampleThreads / 32], ids[kSampleThreads / 32], nans[kSampleThreads / 32];
  threadgroup float sums[kSampleThreads / 32];
  const uint vocab = layout.vocab;
  const uint row = group.y, begin = group.x * kSampleChunk, end = min(begin + kSampleChunk, vocab);
  const int kind = params[row].kind;
  device const float* x = logits + ulong(row) * vocab;
  uint best = 0, id = ~0u, nan = 0;
  for (uint i = begin + thread_index; i < end; i += kSampleThreads) {
    const float value = x[i];
    const uint key = sample_key(value);
    if (key > best) {
      best = key;
      id = i;
    }
    nan |= sample_is_nan(value) ? 1 : 0;
  }
  const uint most = simd_max(best);
  id = simd_min(best == most ? id : ~0u);
  nan = simd_max(nan);
  if (lane == 0) {
    keys[simdgroup] = most;
    ids[simdgroup] = id;
    nans[simdgroup] = nan;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best = 0;
  for (uint i = 0; i < kSampleThreads / 32; ++i) {
    nan |= nans[i];
    if (keys[i] > best || (keys[i] == best && ids[i] < id)) {
      best = keys[i];
      id = ids[i];
    }
  }
  float sum = 0;
  if (sample_wants_logprob(kind) && nan == 0 && best > kKeyOfMinusInfinity) {
    const float top = sample_value(best);
    for (uint i = begin + thread_index; i < end; i += kSampleThreads) {
      const float value = x[i];
      if (sample_key(value) > kKeyOfMinusInfinity) sum += precise::exp(value - top);
    }
    sum = simd_sum(sum);
    if (lane == 0) sums[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = 0;
    for (uint i = 0; i < kSampleThreads / 32; ++i) sum += sums[i];
  }
  if (thread_index == 0) {
    SampleChunk chunk;
    chunk.best_key = best;
    chunk.best_id = id;
    chunk.nan = nan;
    chunk.sum = sum;
    chunks[row * layout.chunks + group.x] = chunk;
  }
  if (kind == kKindFullLogits && params[row].logits_row >= 0) {
    device float* to = (device float*)(output + layout.logits) + ulong(params[row].logits_row) * vocab;
    for (uint i = begin + thread_index; i < end; i += kSampleThreads) to[i] = x[i];
  }
}

// Everything that comes before the temperature, into the work memory. One threadgroup a row; thread t does all of the
// tokens t, t + 256, ..., so what is done to a token is done in order.
[[kernel]] void sample_process(device const float* logits [[buffer(0)]],
                               device const SampleParams* params [[buffer(1)]],
                               device const int* pool [[buffer(2)]],
                               device const int* history [[buffer(3)]],
                               device const int2* counts [[buffer(4)]],
                               device const uint* seen [[buffer(5)]],
                               device float* work [[buffer(6)]],  // [processed rows, vocab]
                               constant SampleOutput& layout [[buffer(7)]],
                               uint row [[threadgroup_position_in_grid]],
                               uint thread_index [[thread_index_in_threadgroup]]) {
  device const SampleParams& p = params[row];
  if (!sample_is_processed(p, counts)) return;
  const uint vocab = layout.vocab;
  const float minus_infinity = as_type<float>(0xff800000u);
  device const float* x = logits + ulong(row) * vocab;
  device float* values = work + ulong(sample_work_row(params, counts, row)) * vocab;
  const int2 count = p.slot >= 0 ? counts[p.slot] : int2(0);
  const int generated = count.y + p.draft_count;
  device const int* draft = pool + p.draft_offset;

  for (uint i = thread_index; i < vocab; i += kSampleThreads) {
    const bool masked = p.mask_offset >= 0 && ((uint(pool[p.mask_offset + int(i / 32)]) >> (i % 32)) & 1) == 0;
    values[i] = masked || p.allowed_count > 0 ? minus_infinity : x[i];
  }
  for (int j = 0; j < p.allowed_count; ++j) {
    const uint id = uint(pool[p.allowed_offset + j]);
    if (id % kSampleThreads != thread_index) continue;
    const bool masked = p.mask_offset >= 0 && ((uint(pool[p.mask_offset + int(id / 32)]) >> (id % 32)) & 1) == 0;
    if (!masked) values[id] = x[id];
  }
  int bad = p.bad_offset;
  for (int j = 0; j < p.bad_count; ++j) {
    const int prefix = pool[bad] - 1, ids = bad + 1;
    bad = ids + prefix + 1;
    if (prefix < 0) continue;
    const uint id = uint(pool[ids + prefix]);
    if (id % kSampleThreads != thread_index) continue;
    bool matches = prefix == 0 || (p.slot >= 0 && prefix <= generated);
    const ulong last = ulong(max(p.slot, 0)) * layout.max_tokens + ulong(count.x + count.y);
    for (int i = 0; matches && i < prefix; ++i) {
      const int back = prefix - i - p.draft_count;  // from the end of the history; 0 and less: in the draft
      matches = (back > 0 ? history[last - ulong(back)] : draft[-back]) == pool[ids + i];
    }
    if (matches) values[id] = minus_infinity;
  }
  if (p.slot >= 0 && generated < p.min_tokens)
    for (int j = 0; j < p.stop_count; ++j) {
      const uint id = uint(pool[p.stop_offset + j]);
      if (id % kSampleThreads == thread_index) values[id] = minus_infinity;
    }
  for (int j = 0; j < p.bias_count; ++j) {
    const uint id = uint(pool[p.bias_offset + 2 * j]);
    if (id % kSampleThreads == thread_index) values[id] += as_type<float>(pool[p.bias_offset + 2 * j + 1]);
  }
  if (p.slot < 0 || (p.presence_penalty == 0 && p.frequency_penalty == 0 && p.repetition_penalty == 1)) return;
  device const uint* slot_seen = seen + ulong(p.slot) * vocab;
  for (uint i = thread_index; i < vocab; i += kSampleThreads) {
    uint occurrences = slot_seen[i];
    for (int j = 0; j < p.draft_count; ++j) occurrences += uint(draft[j]) == i ? 1 : 0;
    if (occurrences == 0) continue;
    float value = values[i];
    value = value > 0 ? value / p.repetition_penalty : value * p.repetition_penalty;
    if ((occurrences & ~kInPrompt) > 0)
      value = value - p.frequency_penalty * float(occurrences & ~kInPrompt) - p.presence_penalty;
    values[i] = value;
  }
}
