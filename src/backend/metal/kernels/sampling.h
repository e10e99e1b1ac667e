// What all kernels that choose tokens from logits have in common. Logits are compared by integer keys (minus infinity,
// infinity and NaN need no float comparison), and probabilities are summed as integers, so that no order of threads can
// change a draw.
#pragma once

#include "common.h"

constant constexpr uint kKeyOfInfinity = 0xff800000u;
constant constexpr uint kKeyOfMinusInfinity = 0x007fffffu;
constant constexpr float kWeightOne = 1099511627776.0f;  // 2^40: the weight of the most likely token
constant constexpr uint kInPrompt = 0x80000000u;         // in `seen`: beside the count of generated occurrences

// RowOutput::Kind
constant constexpr int kKindToken = 0;
constant constexpr int kKindLogprobs = 1;
constant constexpr int kKindScore = 2;
constant constexpr int kKindFullLogits = 4;

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
