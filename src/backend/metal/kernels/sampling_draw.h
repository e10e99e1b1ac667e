// A random token of a row: weights of tokens, top-k, top-p and min-p, the draw.
#pragma once

#include "sampling_cut.h"

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

// The least number that times `weight` is at least `sum`; it is no larger than a vocabulary. Found from an estimate:
// division of 64 bits is a program of its own on a GPU.
static uint sample_quotient(ulong sum, ulong weight) {
  uint n = uint(float(sum) / float(weight));
  while (n > 0 && ulong(n - 1) * weight >= sum) --n;
  while (ulong(n) * weight < sum) ++n;
  return n;
}

// Takes the most likely tokens of those `outer` kept until their weight reaches `wanted`, which is not 0.
static SampleCut sample_select_weight(thread const SampleRow& row, SampleCut outer, ulong wanted,
                                      threadgroup SampleShared& s, SampleThread t) {
  const ulong excess = ulong(outer.tied - outer.ties) * sample_weight(row, sample_value(outer.key));
  uint prefix = 0;
  ulong above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    atomic_store_explicit(&s.low[t.index], 0u, memory_order_relaxed);
    atomic_store_explicit(&s.high[t.index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = t.index; i < row.vocab; i += kSampleThreads) {
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
    const uint bin = 255 - t.index;
    ulong here = (ulong(atomic_load_explicit(&s.high[bin], memory_order_relaxed)) << 32) +
                 atomic_load_explicit(&s.low[bin], memory_order_relaxed);
    const bool holds_outer = shift == 24 || outer.key >> (shift + 8) == prefix;
    if (holds_outer && bin == ((outer.key >> shift) & 255)) here -= min(here, excess);
    prefix = prefix << 8 | sample_digit(above, here, wanted, s, t);
    above = s.above;
  }
  // All tokens at one key weigh the same: what is there is a multiple of it.
  const ulong weight = max(sample_weight(row, sample_value(prefix)), 1ul);
  SampleCut cut;
  cut.key = prefix;
  cut.above = above;
  cut.ties = max(sample_quotient(min(wanted - above, s.here), weight), 1u);
  cut.tied = ~0u;
  return cut;
}

// The first token, in the order of ids, at which the running sum of what the filters left exceeds its random part.
static int sample_draw(thread const SampleRow& row, device const SampleParams& p, threadgroup SampleShared& s,
                       SampleThread t) {
  SampleCut cut;
  cut.key = 0;
  cut.ties = cut.tied = ~0u;
  cut.above = 0;
  const bool top_k = p.top_k > 0 && uint(p.top_k) < row.vocab;
  if (top_k) cut = sample_select_count(row.values, row.vocab, uint(p.top_k), s, t);
  if (p.top_p < 1) {
    ulong weight = 0;
    for (uint i = t.index; i < row.vocab; i += kSampleThreads)
      if (sample_key(row.values[i]) > cut.key || !top_k) weight += sample_weight(row, row.values[i]);
    ulong total = sample_sum(weight, s, t);
    if (top_k) total += ulong(cut.ties) * sample_weight(row, sample_value(cut.key));
    const ulong part = ulong(p.top_p * 4294967296.0f);
    const ulong wanted = (total >> 32) * part + (((total & 0xfffffffful) * part) >> 32);
    if (!top_k) cut.tied = cut.ties = 0;
    cut = sample_select_weight(row, cut, max(wanted, 1ul), s, t);
  }
  const bool cuts = top_k || p.top_p < 1;

  // Each thread takes a run of consecutive ids.
  const uint share = (row.vocab + kSampleThreads - 1) / kSampleThreads;
  const uint begin = min(t.index * share, row.vocab), end = min(begin + share, row.vocab);
  const uint ties_before = cuts ? sample_ties_before(row.values, cut.key, begin, end, s, t) : 0;
  ulong mine = 0;
  uint ties = ties_before;
  for (uint i = begin; i < end; ++i) {
    const uint key = sample_key(row.values[i]);
    if (cuts && (key < cut.key || (key == cut.key && ties++ >= cut.ties))) continue;
    mine += sample_weight(row, row.values[i]);
  }
  if (t.index == 0) s.token = ~0u;
  ulong mass;
  const ulong before = sample_before(mine, s, t, mass);
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

static int sample_choose(device const float* values, uint vocab, uint2 largest, device const SampleParams& p,
                         threadgroup SampleShared& s, SampleThread t) {
  if (largest.x <= kKeyOfMinusInfinity) return -1;
  if (p.temperature < 1e-5f || largest.x >= kKeyOfInfinity) return int(largest.y);
  SampleRow row;
  row.values = values;
  row.vocab = vocab;
  row.best = sample_value(largest.x);
  row.scale = 1.0f / p.temperature;
  row.floor = p.min_p > 0 ? precise::log(p.min_p) : -3.0e38f;
  return sample_draw(row, p, s, t);
}
