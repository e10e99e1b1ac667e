#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/inventory.h"
#include "core/threads.h"
#include "step/view.h"

namespace ingot::cpu {

// Chooses tokens from logits, row by row, and rates them. Every row's result depends on its own logits, parameters and
// slot alone.
//
// Where the parameters leave room:
// - A temperature under 1e-5 is greedy. Greedy takes the largest processed logit, ties to the lowest id.
// - top_k keeps exactly k tokens, ties to the lower id; top_p then keeps the fewest of the most likely of those whose
//   probabilities reach p, the one that reaches it included.
// - bad_words look at generated tokens only, as vLLM does: a word may be finished if it began in the prompt.
// - logprob and rank are those of the raw logits; rank is 1 + the number of tokens with a strictly larger logit.
// - No token left (all barred, or all at -infinity): the token is -1 and nothing is added to the slot. The same when a
//   raw logit is NaN; logprob and top values are then NaN, top ids -1, rank 0.
// - A raw logit of +infinity wins over any other.
// - top_logits and full_logits choose no token (-1); score returns its target. Neither touches the slot.
class Sampler {
 public:
  Sampler(const SamplerLayout& layout, const Kernels& kernels, int workers);
  static size_t bytes(const SamplerLayout& layout, int workers);

  // Room for steps with this many sampled rows.
  void create_rows(int64_t rows);

  // Rewrites the slots a step resets. One worker calls it.
  void reset_slots(const StepView& view);

  // logits [R, vocab]; output: the step's output buffer. `step` counts steps. Called by every worker of a job alike.
  void sample(const float* logits, const StepView& view, const OutputLayout& layout, std::byte* output, uint64_t step,
              Worker& worker);

  // The token that row r of the step before `step` sampled, 0 when there is none (the row failed, and so will this).
  int32_t previous_token(uint64_t step, int64_t row) const;
  // What the rows of a step sampled: [R].
  int32_t* tokens(uint64_t step) const {
    return last_tokens_.as<int32_t>() + static_cast<int64_t>(step % 2) * max_rows_;
  }

 private:
  struct Candidate;
  struct Scratch;
  struct RowStats;
  struct Output;

  Scratch scratch(int worker) const;
  void chunk_stats(const float* logits, const StagedSampling& params, int64_t row, int64_t chunk);
  RowStats row_stats(int64_t row) const;
  void finish_row(const float* logits, const StepView& view, int64_t row, const OutputLayout& layout, std::byte* output,
                  uint64_t step, const Scratch& scratch);
  int32_t choose(const float* logits, const StagedSampling& params, const int32_t* pool, const RowStats& stats,
                 const Scratch& scratch) const;
  int32_t draw(const float* values, const float* maxima, float best, const StagedSampling& params,
               const Scratch& scratch) const;
  const float* process(const float* logits, const StagedSampling& params, const int32_t* pool,
                       const Scratch& scratch) const;
  void penalize(const StagedSampling& params, const int32_t* draft, const Scratch& scratch) const;
  int64_t gather(const float* values, const float* maxima, float limit, Candidate* out) const;
  void top(const float* logits, const float* maxima, int64_t n, int32_t* ids, float* values,
           const Scratch& scratch) const;
  int32_t argmax(const float* values, const float* maxima, float best) const;

  SamplerLayout layout_;
  const Kernels& kernels_;
  int64_t groups_ = 0;  // of kMaximaGroup tokens
  int64_t chunks_ = 0;  // parts of a row's statistics that workers share
  int64_t max_rows_ = 0;
  Pages history_;  // int32 [slots, max_tokens]: prompt, then output
  Pages counts_;   // int32 [slots, 2]: prompt, output
  size_t worker_bytes_ = 0;
  Pages worker_memory_;
  Pages maxima_;       // float [rows, groups] of the raw logits
  Pages chunk_stats_;  // [rows, chunks]
  Pages last_tokens_;  // int32 [2][rows]
};

}  // namespace ingot::cpu
