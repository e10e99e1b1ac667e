#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/llm.h"
#include "orchestrator/acceptance.h"
#include "orchestrator/guided_text.h"
#include "orchestrator/live_generation.h"
#include "orchestrator/stop_text.h"
#include "orchestrator/token_index.h"
#include "prefix/block_hash.h"
#include "prefix/disk_tier.h"
#include "step/validate.h"
#include "text/detokenizer.h"

namespace ingot {

using Clock = std::chrono::steady_clock;

struct DraftCache;
struct HeadCache;
struct Request;

// Rows of which the hidden states are kept for a head that has not read them, and up to as many again: of a prompt its
// last.
inline constexpr int64_t kMostStates = 128;

// A block of a sequence that is in host memory, and on its way to the device.
struct BlockLoad {
  int32_t host_block = -1;
  int64_t position = 0;  // among the sequence's blocks
};

// One choice of a request on its way: its tokens, and the blocks with their K and V.
//
//   tokens    [ prompt ................ | generated ...... ]   known to the host
//   computed  [ written by steps submitted so far ........... ]
//   in_flight   1 while the newest token exists only on the device
struct Sequence {
  enum class State : uint8_t {
    waiting,  // for its turn; may hold shared blocks (a fork) or none
    running,  // holds blocks, gets rows
    parked,   // a beam whose token is known, until the other beams of its request have theirs
    finished,
  };

  Request* request = nullptr;
  int32_t choice = 0;  // also decides its seed
  State state = State::waiting;
  std::vector<int32_t> tokens;
  int64_t computed = 0;
  int32_t in_flight = 0;
  int32_t in_flight_row = -1;  // which sampled row of the newest step is this sequence's next token
  std::vector<int32_t> blocks;
  std::vector<BlockHash> hashes;        // of the full blocks of `tokens`, as far as they were needed
  int64_t remembered = 0;               // blocks told to the pool
  std::vector<BlockLoad> loads;         // before its next row
  std::shared_ptr<BlockLookup> lookup;  // of blocks in files, while it waits
  bool looked_in_files = false;         // since it began to wait
  int32_t slot = -1;                    // sampler slot, while running and needed
  bool slot_ready = false;              // the slot holds this sequence's history

  std::vector<int32_t> draft;    // what may come next: verified by its next row, or by the step in flight
  bool waits_for_draft = false;  // its token in flight is worth waiting for
  int32_t tried_tokens = 0;      // to be guessed for it alone, to see what comes of guesses
  TokenIndex index;              // of `tokens`
  Acceptance acceptance;
  std::shared_ptr<DraftCache> draft_cache;  // what the draft model has of it,
  std::shared_ptr<HeadCache> head_cache;    // or a head that guesses

  std::shared_ptr<GuidedText> guide;    // structured output: what its next token may be
  double logprob = 0;                   // sum over generated tokens, when scores are reported
  std::optional<RowResult> candidates;  // a beam's next tokens, while parked
  std::optional<Detokenizer> detokenizer;
  std::optional<StopText> stop_text;
  std::string text;                // best_of only: kept until the best are known
  std::vector<TokenScore> scores;  // best_of and beams only
  FinishReason finish = FinishReason::none;
  std::variant<std::monostate, int32_t, std::string> stop_reason;  // kept like `text`
  Clock::time_point last_token;

  int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  int64_t length() const { return known() + in_flight; }  // with the token that only the device knows
  int64_t generated() const;
  bool decodes() const;                                    // its prompt is computed
  int64_t missing() const { return length() - computed; }  // rows until its next token
  // Its next row follows from its newest token, so that has to be known to the host first.
  bool needs_host() const { return guide || waits_for_draft || (in_flight > 0 && !draft.empty()); }
  bool waits_for_files() const { return lookup && !lookup->done(); }
  bool waits_for_host() const { return needs_host() && (in_flight > 0 || (guide && !guide->may_draw())); }
};

// A request with all its choices.
struct Request {
  GenerationRequest spec;
  std::shared_ptr<LiveGeneration> generation;
  uint64_t arrival = 0;  // order of submission
  int64_t prompt_len = 0;
  int64_t max_tokens = 0;               // cut to the context
  int32_t width = 1;                    // choices generated: best_of, or beams
  bool keep_all = false;                // nothing goes out before the end: best_of or beams
  bool forked = false;                  // choices 1.. were created
  bool keeps_rows = false;              // an embedding of more than the last row
  bool gives_states = false;            // its rows give their hidden states, to a head that guesses
  std::vector<int32_t> named_stop_ids;  // stop tokens the caller named; sampling.stop_token_ids has the model's too
  int64_t list_words = 0;               // words of its token lists in a staged step
  uint64_t host_bytes = 0;
  BlockHash salt;               // of spec.cache_salt; {}: none
  int64_t unsalted_blocks = 0;  // of the beginning

  std::vector<std::shared_ptr<Sequence>> sequences;  // alive or finished, by choice; for beams: the current beams
  std::vector<std::shared_ptr<Sequence>> finished_beams;
  std::vector<TokenScore> prompt_scores;
  GenerationSummary summary;
  Clock::time_point submitted, first_step, first_token;
  bool started = false, has_token = false;  // first_step, first_token are set
  bool complete = false;                    // everything was handed to the generation

  // Beams draw nothing; pooled rows are kept like a history.
  bool needs_slot() const { return keeps_rows || (!spec.beam_search && needs_history(spec.sampling)); }
  bool reports_scores() const { return spec.logprobs >= 0 || keep_all; }
  bool scores_prompt() const { return spec.prompt_logprobs >= 0; }
  // Whether every row of the prompt must be computed.
  bool reads_all() const { return scores_prompt() || keeps_rows; }
  // Forced tokens need not be drawn: nobody asks for their logprobs, and nothing else bars them.
  bool may_jump() const {
    const SamplingParams& p = spec.sampling;
    return !reports_scores() && p.bad_words.empty() && p.allowed_token_ids.empty() && p.logit_bias.empty();
  }
  bool all_finished() const;
};

inline int64_t Sequence::generated() const { return known() - request->prompt_len; }
inline bool Sequence::decodes() const { return computed >= request->prompt_len; }

inline bool Request::all_finished() const {
  for (const auto& sequence : sequences)
    if (sequence->state != Sequence::State::finished) return false;
  return true;
}

}  // namespace ingot
