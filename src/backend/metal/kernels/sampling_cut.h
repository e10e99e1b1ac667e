// The largest numbers of a row, by the threads of a threadgroup together: radix selection by count or by weight, eight
// bits of a key at a time. Sums are of integers, so no order of threads can change them.
#pragma once

#include "sampling.h"

struct SampleThread {
  uint index, lane, simdgroup;
};
constant constexpr uint kSampleSimdgroups = kSampleThreads / 32;

// What the threads of one row share.
struct SampleShared {
  atomic_uint low[256], high[256];  // a histogram; 64-bit sums in two words
  ulong sums[kSampleSimdgroups];
  uint keys[kSampleSimdgroups], ids[kSampleSimdgroups], nans[kSampleSimdgroups];
  uint top_keys[kSampleMaxTop], top_ids[kSampleMaxTop];
  atomic_uint found;
  uint digit, token;
  ulong above, here;  // of the digit
};

// The sum of the lanes before, of numbers of 64 bits: in parts whose sums have room in 32.
static ulong sample_lanes_before(ulong x) {
  const uint low = simd_prefix_exclusive_sum(uint(x) & 0x7ffffffu);
  const uint middle = simd_prefix_exclusive_sum(uint(x >> 27) & 0x7ffffffu);
  const uint high = simd_prefix_exclusive_sum(uint(x >> 54));
  return ulong(low) + (ulong(middle) << 27) + (ulong(high) << 54);
}

// The sum of `x` of the threads before this one; that of all threads in `total`.
static ulong sample_before(ulong x, threadgroup SampleShared& s, SampleThread t, thread ulong& total) {
  ulong before = sample_lanes_before(x);
  if (t.lane == 31) s.sums[t.simdgroup] = before + x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  total = 0;
  for (uint i = 0; i < kSampleSimdgroups; ++i) {
    if (i == t.simdgroup) before += total;
    total += s.sums[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return before;
}
static ulong sample_sum(ulong x, threadgroup SampleShared& s, SampleThread t) {
  ulong total;
  sample_before(x, s, t, total);
  return total;
}

// The last token kept when tokens are taken from the most likely down: tokens above `key` are kept, and the first
// `ties` (by id) of those at it.
struct SampleCut {
  uint key;
  uint ties;    // kept
  uint tied;    // there are
  ulong above;  // how many, or how much weight, lies above `key`
};

// The next digit of the key: that of the bin in which what lies above and in it reaches `wanted`, from the largest
// down, or the last. `here` is what bin 255 - t.index holds; s.above and s.here are those of the bin found.
static uint sample_digit(ulong above, ulong here, ulong wanted, threadgroup SampleShared& s, SampleThread t) {
  ulong all;
  const ulong before = above + sample_before(here, s, t, all);
  if (before < wanted && (before + here >= wanted || t.index == 255)) {
    s.digit = 255 - t.index;
    s.above = before;
    s.here = here;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return s.digit;
}

// Takes the `wanted` largest tokens, at least one.
static SampleCut sample_select_count(device const float* values, uint vocab, uint wanted, threadgroup SampleShared& s,
                                     SampleThread t) {
  uint prefix = 0, above = 0, tied = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    atomic_store_explicit(&s.low[t.index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = t.index; i < vocab; i += kSampleThreads) {
      const uint key = sample_key(values[i]);
      if (shift == 24 || key >> (shift + 8) == prefix)
        atomic_fetch_add_explicit(&s.low[(key >> shift) & 255], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint here = atomic_load_explicit(&s.low[255 - t.index], memory_order_relaxed);
    prefix = prefix << 8 | sample_digit(above, here, wanted, s, t);
    above = uint(s.above);
    tied = uint(s.here);
  }
  SampleCut cut;
  cut.key = prefix;
  cut.ties = min(wanted - above, tied);
  cut.tied = tied;
  cut.above = above;
  return cut;
}

// The number of tokens at `key` with a smaller id than this thread's part of the row, [begin, end).
static uint sample_ties_before(device const float* values, uint key, uint begin, uint end, threadgroup SampleShared& s,
                               SampleThread t) {
  uint mine = 0;
  for (uint i = begin; i < end; ++i) mine += sample_key(values[i]) == key ? 1 : 0;
  ulong all;
  return uint(sample_before(mine, s, t, all));
}
