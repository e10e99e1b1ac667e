#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

// The contract between an orchestrator (what to run) and the engine (how): one Step in, one submission, one wait, one
// StepResult out. A Step is plain data and explicit: nothing is inferred from the sizes of its arrays.
namespace ingot {

// decode: every sequence has one row. prefill: any number of rows each. mixed: the decode sequences come first.
enum class StepKind : uint8_t { prefill, decode, mixed };

// How the token of one row is chosen. Applied in this order: allowed tokens, grammar mask, bad words, min_tokens, logit
// bias, penalties, temperature, min-p, top-k, top-p, then the draw.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, exact argmax, ties to the lowest id
  int32_t top_k = 0;                // 0 or -1: off
  float top_p = 1.0f;               // (0, 1]; 1: off
  float min_p = 0.0f;               // [0, 1]; 0: off
  float presence_penalty = 0.0f;    // subtracted once for each token already generated
  float frequency_penalty = 0.0f;   // subtracted once per occurrence of a generated token
  float repetition_penalty = 1.0f;  // divides (or multiplies, below 0) tokens of prompt and output; 1: off
  uint64_t seed = 0;                // with the row's position, the whole state of its random numbers
  int32_t min_tokens = 0;           // stop_token_ids cannot be drawn before this many tokens were generated
  std::vector<int32_t> stop_token_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token, added to its logit)
  std::vector<int32_t> allowed_token_ids;             // empty: all
  std::vector<std::vector<int32_t>> bad_words;        // the last token of each sequence is barred after the others
};

// How a model's makers want it sampled, where they say so.
struct SamplingAdvice {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  bool operator==(const SamplingAdvice&) const = default;

  // `params` with the advice in place of what it has.
  SamplingParams over(SamplingParams params) const {
    params.temperature = temperature.value_or(params.temperature);
    params.top_p = top_p.value_or(params.top_p);
    params.min_p = min_p.value_or(params.min_p);
    params.repetition_penalty = repetition_penalty.value_or(params.repetition_penalty);
    params.top_k = top_k.value_or(params.top_k);
    return params;
  }
};

// What one sampled row returns.
struct RowOutput {
  enum class Kind : uint8_t {
    token,        // the sampled token id
    logprobs,     // the token, its logprob and rank, and the `top` most likely tokens with theirs
    score,        // no sampling: logprob and rank of `target`, and the `top` most likely (prompt logprobs, perplexity)
    top_logits,   // the `top` largest raw logits with their ids
    full_logits,  // the whole row of raw logits
  };
  Kind kind = Kind::token;
  int32_t top = 0;      // how many alternatives; at most EngineLimits::max_top
  int32_t target = -1;  // score only: the token that is rated
};

inline bool draws_token(const RowOutput& output) {
  return output.kind == RowOutput::Kind::token || output.kind == RowOutput::Kind::logprobs;
}

// Penalty history of a sequence, (re)written before the step; later sampled tokens are appended by the engine itself.
// A slot must be reset before its first use by a new sequence, and after a preemption with what was generated so far.
struct SamplerReset {
  int32_t slot = 0;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> output_ids;
};

struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

// One vector of a whole text: that of its last token, the mean of all, or that of its first.
struct Pooling {
  enum class Kind : uint8_t { none, last, mean, first };
  Kind kind = Kind::none;
  bool normalize = true;  // to length 1

  explicit operator bool() const { return kind != Kind::none; }
  // Whether rows of earlier steps matter: then no prefix may come from a cache.
  bool keeps() const { return kind == Kind::mean || kind == Kind::first; }
};

// A sequence of the step whose rows join those of its earlier steps in one vector (EngineLimits::pooling).
struct PooledSequence {
  int32_t seq = 0;   // its place among the step's sequences
  int32_t slot = 0;  // where what the steps before gave is kept: the same in all of its steps, nobody else's meanwhile
};

struct Step {
  StepKind kind = StepKind::decode;
  int32_t num_scheduled_tokens = 0;  // T
  int32_t num_seqs_active = 0;       // S
  int32_t num_decode_tokens = 0;     // rows of decode sequences; they come first
  int32_t max_query_len = 0;         // most rows of one sequence
  int32_t max_seq_len = 0;           // largest of seq_lens

  std::vector<int32_t> token_ids;        // [T]; -1 - r: the token that row r of the previous step sampled
  std::vector<int32_t> positions;        // [T]
  std::vector<int64_t> slot_mapping;     // [T] block * block_size + offset: where the row's K and V go
  std::vector<int32_t> query_start_loc;  // [S + 1] first row of each sequence
  std::vector<int32_t> seq_lens;         // [S] full lengths, this step's rows included
  std::vector<int32_t> block_table;      // [S][max_blocks] physical block ids, row-major; unused entries are -1
  int32_t max_blocks = 0;

  // What happens to blocks before any row is computed, in this order. A step may have nothing else.
  std::vector<BlockCopy> block_saves;   // from a block to a block of host memory (EngineLimits::host_blocks)
  std::vector<BlockCopy> block_loads;   // from a block of host memory
  std::vector<int32_t> blocks_to_zero;  // all of them before the copies
  std::vector<BlockCopy> block_copies;  // in order
  std::vector<SamplerReset> sampler_resets;

  std::vector<int32_t> sample_rows;      // [R] rows that produce output, ascending
  std::vector<SamplingParams> sampling;  // [R]
  // [R]; -1: no penalty history (then penalties, bad words and min_tokens are refused). Neighbouring rows of one
  // sequence may share one: a draft that is verified. Each is drawn as if the tokens up to its own had been, and the
  // slot takes the tokens up to the first that is not what the next row has.
  std::vector<int32_t> sampler_slot;
  std::vector<RowOutput> output;       // [R]
  std::vector<uint32_t> grammar_mask;  // empty, or [R][ceil(vocab / 32)]: bit set = allowed

  std::vector<PooledSequence> pooled;  // [P], by ascending seq

  // Hidden states, between a model and a head that guesses tokens from them (docs/step-contract.md). Rows whose states
  // come back, ascending; none unless EngineLimits::state_width.
  std::vector<int32_t> state_rows;
  // What a head reads beside its tokens: [T][given_width], by rows; nothing for a model.
  std::vector<float> states;
  int32_t given_width = 0;  // EngineLimits::reads_width, or the head's own state_width
};

// A token and its log probability under the raw logits.
struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0.0f;  // for top_logits: the raw logit
};

struct RowResult {
  int32_t token = -1;             // sampled (or, for score, the target)
  float logprob = 0.0f;           // of `token`; logprobs and score only
  int32_t rank = 0;               // 1 = most likely; logprobs and score only
  std::vector<TokenLogprob> top;  // most likely first, ties to the lower id
  std::vector<float> logits;      // full_logits only: [vocab]
};

// What the step really did, counted where it happens. The invariants of docs/step-contract.md are asserted on these.
struct StepStats {
  uint32_t submissions = 0;         // must be 1
  uint32_t waits = 0;               // must be 1
  uint32_t encode_waits = 0;        // waits or status polls during encoding: must be 0
  uint32_t encode_readbacks = 0;    // host reads of device memory during encoding: must be 0
  uint32_t encode_allocations = 0;  // must be 0
  uint32_t encode_compiles = 0;     // must be 0
  uint32_t dispatches = 0;          // operations encoded
  double stage_us = 0;              // copying inputs
  double encode_us = 0;             // host time of the encode phase
  double run_us = 0;                // device time
  double gap_us = 0;                // device idle time before this step, since the previous one ended
  double move_us = 0;               // of run_us: copies to and from host blocks, where they come before the rows
  uint64_t weight_bytes = 0;        // weights read, as stored on the device
  uint64_t kv_bytes = 0;            // K and V read
  uint64_t wire_bytes = 0;          // sent to other ranks by this one, inputs of the step not counted,
  uint32_t wire_messages = 0;       // in so many messages,
  uint32_t collectives = 0;         // for so many operations of all ranks together
};

struct StepResult {
  std::vector<RowResult> rows;             // [R], in the order of sample_rows
  std::vector<std::vector<float>> pooled;  // [P][hidden], of all rows of the sequence so far
  std::vector<float> states;               // [state_rows][EngineLimits::state_width]
  StepStats stats;
};

}  // namespace ingot
