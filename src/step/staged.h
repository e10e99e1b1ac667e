#pragma once

#include <cstddef>
#include <cstdint>

// A step as devices read it: numbers, and offsets into the shared buffer that stage_step() filled.
namespace ingot {

// Sampling parameters of one row, flattened for the device. Offsets and counts point into StagedStep::pool (int32
// words).
struct StagedSampling {
  float temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  int32_t top_k;
  int32_t slot;  // sampler slot or -1
  uint64_t seed;
  int32_t position;  // position of the token to be drawn: the random counter
  int32_t kind;      // RowOutput::Kind
  int32_t top;
  int32_t target;
  int32_t min_tokens;
  int32_t stop_offset, stop_count;        // token ids
  int32_t bias_offset, bias_count;        // (token id, float bits) pairs
  int32_t allowed_offset, allowed_count;  // token ids, ascending, unique
  int32_t bad_offset, bad_count;          // bad_count sequences, each: length, ids...
  int32_t mask_offset;                    // ceil(vocab / 32) words, or -1
  int32_t logits_row;                     // where a full_logits row goes in the output, or -1
  int32_t draft_offset, draft_count;      // token ids taken for granted behind the slot's history
};

// The inputs of one step, copied into one of two shared (host-visible) buffers before encoding. All are byte offsets
// from the start of that buffer; operations read them on the device.
struct StagedStep {
  int32_t ring = 0;  // which of the two
  int32_t tokens = 0, seqs = 0, decode_rows = 0, samples = 0;
  int32_t max_blocks = 0, max_query_len = 0, max_seq_len = 0;
  int32_t saves = 0, loads = 0, zeros = 0, copies = 0, resets = 0;
  // So many come before the rows, which do not touch the blocks of the others.
  int32_t saves_first = 0, loads_first = 0;
  int32_t pooled = 0;       // sequences
  int32_t pooled_word = 0;  // of `pool`, from which on they are: PooledRows
  int32_t states = 0;       // rows whose hidden states come back
  int32_t given_width = 0;  // of `given`
  size_t state_rows = 0;    // int32 [states]
  size_t given = 0;         // float [T][given_width]: states that a head reads,
  size_t embedded = 0;      // float [T][hidden]: and its tokens' rows of the embedding, where the host has that
  size_t token_ids = 0;     // int32 [T]; -1 - r: row r of the previous step's samples
  size_t positions = 0;     // int32 [T]
  size_t slots = 0;         // int64 [T]
  size_t query_start = 0;   // int32 [S + 1]
  size_t seq_lens = 0;      // int32 [S]
  size_t block_table = 0;   // int32 [S][max_blocks]
  size_t block_saves = 0;   // int32 [saves][2]: block, host block
  size_t block_loads = 0;   // int32 [loads][2]: host block, block
  size_t block_copies = 0;  // int32 [copies][2]
  size_t block_zeros = 0;   // int32 [zeros]
  size_t sample_rows = 0;   // int32 [R]
  size_t sampling = 0;      // StagedSampling [R]
  size_t reset_words = 0;   // int32 [resets][4]: slot, pool offset, prompt count, output count
  size_t pool = 0;          // int32 words
  size_t bytes = 0;         // used in all
};

}  // namespace ingot
