// Choosing tokens from logits. Logits are compared by integer keys (minus infinity, infinity and NaN need no float
// comparison), and probabilities are summed as integers, so that no order of threads can change a draw.
#include "common.h"

constant constexpr uint kKeyOfInfinity = 0xff800000u;
constant constexpr uint kKeyOfMinusInfinity = 0x007fffffu;
constant constexpr float kWeightOne = 1099511627776.0f;  // 2^40: the weight of the most likely token
constant constexpr uint kInPrompt = 0x80000000u;         // in `seen`: beside the count of generated occurrences

// RowOutput::Kind
constant constexpr int kKindToken = 0, kKindLogprobs = 1, kKindScore = 2, kKindFullLogits = 4;

static uint sample_key(float x) {
  uint bits = as_type<uint>(x);
  if (bits == 0x80000000u) bits = 0;  // minus zero is zero
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
static float sample_value(uint key) { return as_type<float>(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu)); }
static bool sample_is_nan(float x) { return (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u; }
static bool sample_chooses(int kind) { return kind == kKindToken || kind == kKindLogprobs; }
static bool sample_wants_logprob(int kind) { return kind == kKindLogprobs || kind == kKindScore; }

// Whether anything changes the logits before the temperature. `counts` are the slot's: prompt, generated.
static bool sample_is_processed(device const SampleParams& p, device const int2* counts) {
  if (!sample_chooses(p.kind)) return false;
  if (p.allowed_count > 0 || p.mask_offset >= 0 || p.bad_count > 0 || p.bias_count > 0) return true;
  if (p.slot < 0) return false;
  if (p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1) return true;
  return p.stop_count > 0 && counts[p.slot].y + p.draft_count < p.min_tokens;
}

// Which row of the work memory belongs to a processed row: the number of processed rows before it.
static uint sample_work_row(device const SampleParams* params, device const int2* counts, uint row) {
  uint n = 0;
  for (uint r = 0; r < row; ++r) n += sample_is_processed(params[r], counts) ? 1 : 0;
  return n;
}

// ---- slots ----

// Rewrites the histories of the slots a step resets. One threadgroup a reset.
[[kernel]] void sample_reset(device const int4* resets [[buffer(0)]],  // slot, pool offset, prompt count, output count
                             device const int* pool [[buffer(1)]],
                             device int* history [[buffer(2)]],       // [slots, max tokens]
                             device int2* counts [[buffer(3)]],       // [slots]: prompt, generated
                             device atomic_uint* seen [[buffer(4)]],  // [slots, vocab]
                             constant SampleResetParams& p [[buffer(5)]],
                             uint group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]]) {
  const uint max_tokens = p.max_tokens, vocab = p.vocab;
  const int4 reset = resets[group];
  const uint prompt = min(uint(reset.z), max_tokens);
  const uint generated = min(uint(reset.w), max_tokens - prompt);
  device atomic_uint* slot_seen = seen + ulong(reset.x) * vocab;
  for (uint i = thread_index; i < vocab; i += kSampleThreads)
    atomic_store_explicit(slot_seen + i, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_device);
  for (uint i = thread_index; i < prompt + generated; i += kSampleThreads) {
    const int id = pool[reset.y + int(i)];
    history[ulong(reset.x) * max_tokens + i] = id;
    if (uint(id) >= vocab) continue;
    if (i < prompt) {
      atomic_fetch_or_explicit(slot_seen + id, kInPrompt, memory_order_relaxed);
    } else {
      atomic_fetch_add_explicit(slot_seen + id, 1u, memory_order_relaxed);
    }
  }
  if (thread_index == 0) counts[reset.x] = int2(int(prompt), int(generated));
}

// Histories grow only when every row has chosen, in the order of the rows. One thread.
[[kernel]] void sample_commit(device const SampleParams* params [[buffer(0)]],
                              device const uchar* output [[buffer(1)]],
                              device int* history [[buffer(2)]],
                              device int2* counts [[buffer(3)]],
                              device uint* seen [[buffer(4)]],
                              constant SampleOutput& layout [[buffer(5)]],
                              device const int* pool [[buffer(6)]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  if (thread_index != 0) return;
  const uint vocab = layout.vocab;
  device const int* tokens = (device const int*)(output + layout.tokens);
  bool drawn = true;  // what a row that continues a draft takes for granted
  for (uint row = 0; row < layout.rows; ++row) {
    const int slot = params[row].slot, token = tokens[row], drafted = params[row].draft_count;
    drawn = drafted == 0 || (drawn && tokens[row - 1] == pool[params[row].draft_offset + drafted - 1]);
    if (!drawn || slot < 0 || token < 0 || !sample_chooses(params[row].kind)) continue;
    const int2 count = counts[slot];
    const uint used = uint(count.x + count.y);
    if (used >= layout.max_tokens) continue;
    history[ulong(slot) * layout.max_tokens + used] = token;
    counts[slot] = int2(count.x, count.y + 1);
    seen[ulong(slot) * vocab + token] += 1;
  }
}

// ---- raw logits ----

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

// ---- processed logits ----

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

// ---- choice ----

// What the threads of one row share.
struct SampleShared {
  atomic_uint low[256], high[256];  // a histogram; 64-bit sums in two words
  ulong sums[kSampleThreads];
  uint counts[kSampleThreads];
  uint keys[kSampleThreads / 32], ids[kSampleThreads / 32];
  uint top_keys[kSampleMaxTop], top_ids[kSampleMaxTop];
  atomic_uint found;
  uint token;
};

// The first 64 bits of Philox4x32-10 with `seed` as key and `counter` as counter; the upper 53 make a uniform number.
static ulong sample_random_bits(ulong seed, ulong counter) {
  uint c0 = uint(counter), c1 = uint(counter >> 32), c2 = 0, c3 = 0;
  uint k0 = uint(seed), k1 = uint(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const ulong a = ulong(0xD2511F53u) * c0;
    const ulong b = ulong(0xCD9E8D57u) * c2;
    const uint n0 = uint(b >> 32) ^ c1 ^ k0;
    const uint n2 = uint(a >> 32) ^ c3 ^ k1;
    c1 = uint(b);
    c3 = uint(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (ulong(c0) << 32) | c1;
}

// floor(fraction / 2^53 * mass)
static ulong sample_scale(ulong fraction, ulong mass) {
  const ulong al = fraction & 0xfffffffful, ah = fraction >> 32;
  const ulong bl = mass & 0xfffffffful, bh = mass >> 32;
  const ulong cross1 = ah * bl, cross2 = al * bh;
  const ulong middle = ((al * bl) >> 32) + (cross1 & 0xfffffffful) + (cross2 & 0xfffffffful);
  const ulong high = ah * bh + (cross1 >> 32) + (cross2 >> 32) + (middle >> 32);
  return (high << 11) | ((middle & 0xfffffffful) >> 21);
}

// A row's tokens as the draw sees them.
struct SampleRow {
  device const float* values;
  uint vocab;
  float best;   // largest value
  float scale;  // 1 / temperature
  float floor;  // of (value - best) * scale; tokens below weigh nothing
};
static ulong sample_weight(thread const SampleRow& row, float value) {
  const float x = (value - row.best) * row.scale;
  return x >= row.floor ? ulong(precise::exp(x) * kWeightOne) : 0ul;
}

// Sum of every thread's `x`, in all threads.
static ulong sample_sum(ulong x, threadgroup SampleShared& s, uint thread_index) {
  s.sums[thread_index] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong sum = 0;
  for (uint i = 0; i < kSampleThreads; ++i) sum += s.sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}

// The last token kept when tokens are taken from the most likely down: tokens above `key` are kept, and the first
// `ties` (by id) of those at it.
struct SampleCut {
  uint key;
  uint ties;    // kept
  uint tied;    // there are
  ulong above;  // how many, or how much weight, lies above `key`
};

// Takes the `wanted` largest tokens. Eight bits of the key at a time.
static SampleCut sample_select_count(device const float* values, uint vocab, uint wanted, threadgroup SampleShared& s,
                                     uint thread_index) {
  uint prefix = 0, above = 0, tied = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    atomic_store_explicit(&s.low[thread_index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < vocab; i += kSampleThreads) {
      const uint key = sample_key(values[i]);
      if (shift == 24 || key >> (shift + 8) == prefix)
        atomic_fetch_add_explicit(&s.low[(key >> shift) & 255], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint digit = 0;
    for (int bin = 255; bin >= 0; --bin) {
      tied = atomic_load_explicit(&s.low[bin], memory_order_relaxed);
      if (above + tied >= wanted || bin == 0) {
        digit = uint(bin);
        break;
      }
      above += tied;
    }
    prefix = prefix << 8 | digit;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  SampleCut cut;
  cut.key = prefix;
  cut.ties = min(wanted - above, tied);
  cut.tied = tied;
  cut.above = above;
  return cut;
}

// Takes the most likely tokens of those `outer` kept until their weight reaches `wanted`.
static SampleCut sample_select_weight(thread const SampleRow& row, SampleCut outer, ulong wanted,
                                      threadgroup SampleShared& s, uint thread_index) {
  const ulong excess = ulong(outer.tied - outer.ties) * sample_weight(row, sample_value(outer.key));
  uint prefix = 0;
  ulong above = 0, here = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    atomic_store_explicit(&s.low[thread_index], 0u, memory_order_relaxed);
    atomic_store_explicit(&s.high[thread_index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < row.vocab; i += kSampleThreads) {
      const float value = row.values[i];
      const uint key = sample_key(value);
      if (key < outer.key || (shift < 24 && key >> (shift + 8) != prefix)) continue;
      const ulong weight = sample_weight(row, value);
      if (weight == 0) continue;
      const uint bin = (key >> shift) & 255, low = uint(weight);
      const uint before = atomic_fetch_add_explicit(&s.low[bin], low, memory_order_relaxed);
      atomic_fetch_add_explicit(&s.high[bin], uint(weight >> 32) + (before + low < before ? 1u : 0u),
                                memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool holds_outer = shift == 24 || outer.key >> (shift + 8) == prefix;
    uint digit = 0;
    for (int bin = 255; bin >= 0; --bin) {
      here = (ulong(atomic_load_explicit(&s.high[bin], memory_order_relaxed)) << 32) +
             atomic_load_explicit(&s.low[bin], memory_order_relaxed);
      if (holds_outer && uint(bin) == ((outer.key >> shift) & 255)) here -= min(here, excess);
      if (above + here >= wanted || bin == 0) {
        digit = uint(bin);
        break;
      }
      above += here;
    }
    prefix = prefix << 8 | digit;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const ulong weight = max(sample_weight(row, sample_value(prefix)), 1ul);
  SampleCut cut;
  cut.key = prefix;
  cut.above = above;
  cut.ties = wanted > above ? uint((wanted - above + weight - 1) / weight) : 1u;
  cut.ties = min(cut.ties, uint(max(here / weight, 1ul)));
  cut.tied = ~0u;
  return cut;
}

// The number of tokens at `key` with a smaller id than this thread's part of the row, [begin, end).
static uint sample_ties_before(device const float* values, uint key, uint begin, uint end, threadgroup SampleShared& s,
                               uint thread_index) {
  uint mine = 0;
  for (uint i = begin; i < end; ++i) mine += sample_key(values[i]) == key ? 1 : 0;
  s.counts[thread_index] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint before = 0;
  for (uint i = 0; i < thread_index; ++i) before += s.counts[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return before;
}

// The first token, in the order of ids, at which the running sum of what the filters left exceeds its random part.
static int sample_draw(thread const SampleRow& row, device const SampleParams& p, threadgroup SampleShared& s,
                       uint thread_index) {
  SampleCut cut;
  cut.key = 0;
  cut.ties = cut.tied = ~0u;
  cut.above = 0;
  const bool top_k = p.top_k > 0 && uint(p.top_k) < row.vocab;
  if (top_k) cut = sample_select_count(row.values, row.vocab, uint(p.top_k), s, thread_index);
  if (p.top_p < 1) {
    ulong weight = 0;
    for (uint i = thread_index; i < row.vocab; i += kSampleThreads)
      if (sample_key(row.values[i]) > cut.key || !top_k) weight += sample_weight(row, row.values[i]);
    ulong total = sample_sum(weight, s, thread_index);
    if (top_k) total += ulong(cut.ties) * sample_weight(row, sample_value(cut.key));
    const ulong part = ulong(p.top_p * 4294967296.0f);
    const ulong wanted = (total >> 32) * part + (((total & 0xfffffffful) * part) >> 32);
    if (!top_k) cut.tied = cut.ties = 0;
    cut = sample_select_weight(row, cut, max(wanted, 1ul), s, thread_index);
  }
  const bool cuts = top_k || p.top_p < 1;

  // Each thread takes a run of consecutive ids.
  const uint share = (row.vocab + kSampleThreads - 1) / kSampleThreads;
  const uint begin = min(thread_index * share, row.vocab), end = min(begin + share, row.vocab);
  const uint ties_before = cuts ? sample_ties_before(row.values, cut.key, begin, end, s, thread_index) : 0;
  ulong mine = 0;
  uint ties = ties_before;
  for (uint i = begin; i < end; ++i) {
    const uint key = sample_key(row.values[i]);
    if (cuts && (key < cut.key || (key == cut.key && ties++ >= cut.ties))) continue;
    mine += sample_weight(row, row.values[i]);
  }
  const ulong mass = sample_sum(mine, s, thread_index);
  ulong before = 0;
  s.sums[thread_index] = mine;
  if (thread_index == 0) s.token = ~0u;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < thread_index; ++i) before += s.sums[i];
  const ulong aim = sample_scale(sample_random_bits(p.seed, ulong(long(p.position))) >> 11, mass);
  if (before <= aim && aim < before + mine) {
    ties = ties_before;
    ulong running = before;
    for (uint i = begin; i < end; ++i) {
      const uint key = sample_key(row.values[i]);
      if (cuts && (key < cut.key || (key == cut.key && ties++ >= cut.ties))) continue;
      running += sample_weight(row, row.values[i]);
      if (running > aim) {
        s.token = i;
        break;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint token = s.token;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return int(token);
}

// The largest value of a row and the lowest id that has it; `nan` when one is among them.
static uint2 sample_largest(device const float* values, uint vocab, threadgroup SampleShared& s, uint thread_index, uint lane,
                            uint simdgroup, thread bool& nan) {
  uint best = 0, id = ~0u, bad = 0;
  for (uint i = thread_index; i < vocab; i += kSampleThreads) {
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
  if (lane == 0) {
    s.keys[simdgroup] = most;
    s.ids[simdgroup] = id;
    s.counts[simdgroup] = bad;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best = 0;
  id = ~0u;
  for (uint i = 0; i < kSampleThreads / 32; ++i) {
    bad |= s.counts[i];
    if (s.keys[i] > best || (s.keys[i] == best && s.ids[i] < id)) {
      best = s.keys[i];
      id = s.ids[i];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  nan = bad != 0;
  return uint2(best, id);
}

static int sample_choose(device const float* values, uint vocab, uint2 largest, device const SampleParams& p,
                         threadgroup SampleShared& s, uint thread_index) {
  if (largest.x <= kKeyOfMinusInfinity) return -1;
  if (p.temperature < 1e-5f || largest.x >= kKeyOfInfinity) return int(largest.y);
  SampleRow row;
  row.values = values;
  row.vocab = vocab;
  row.best = sample_value(largest.x);
  row.scale = 1.0f / p.temperature;
  row.floor = p.min_p > 0 ? precise::log(p.min_p) : -3.0e38f;
  return sample_draw(row, p, s, thread_index);
}

// The `count` largest raw logits, largest first, ties to the lower id; `shift.x` and then `shift.y` are taken off.
static void sample_top(device const float* logits, uint vocab, uint count, float2 shift, device int* ids, device float* values,
                       threadgroup SampleShared& s, uint thread_index) {
  const SampleCut cut = sample_select_count(logits, vocab, count, s, thread_index);
  const uint share = (vocab + kSampleThreads - 1) / kSampleThreads;
  const uint begin = min(thread_index * share, vocab), end = min(begin + share, vocab);
  uint ties = sample_ties_before(logits, cut.key, begin, end, s, thread_index);
  if (thread_index == 0) atomic_store_explicit(&s.found, 0u, memory_order_relaxed);
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
  if (thread_index < count) {
    const uint key = s.top_keys[thread_index], id = s.top_ids[thread_index];
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
    if (sample_is_processed(p, counts)) {
      device const float* values = work + ulong(sample_work_row(params, counts, row)) * vocab;
      bool bad = false;
      const uint2 processed = sample_largest(values, vocab, s, thread_index, lane, simdgroup, bad);
      if (!bad) token = sample_choose(values, vocab, processed, p, s, thread_index);
    } else {
      token = sample_choose(x, vocab, largest, p, s, thread_index);
    }
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
      rank = 1 + uint(sample_sum(greater, s, thread_index));
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
  sample_top(x, vocab, count, shift, ids, values, s, thread_index);
}
