// The histories of sampler slots: what a sequence's penalties look back on.
#include "sampling.h"

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
