// What host code and kernels must agree on: what a kernel is told beside its buffers, the numbers of the function
// constants, and sizes that both count with. Both include this file. Only numbers of fixed width lie in the structs, in
// an order without gaps.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#define SHARED_CONSTANT constant constexpr
#else
#include <cstdint>
#define SHARED_CONSTANT inline constexpr
namespace ingot::metal {
#endif

// Numbers of [[function_constant()]]. What each means is said where the kernels declare it.
enum FunctionConstant : uint32_t {
  kNormLayer = 0,
  kNormWeight,
  kNormBias,
  kNormAdd,
  kNormCopy,
  kNormSlices,
  kNormFormat,
  kRouteNormalize,
  kRouteLogits,
  kPoolKind,
  kPoolNormalize,
  kLinearFormat = 20,
  kLinearFormatUp,
  kLinearRows,
  kLinearShared,
  kLinearSlices,
  kLinearUnroll,
  kLinearMatrix,
  kLinearTileOutputs,
  kLinearBuffers,
  kLinearActivation,
  kLinearX,
  kLinearExperts,
  kLinearSplit,
  kLinearTileParts,
  kLinearCut,
  kLinearTileWidth,
  kLinearTileTurn,
  kLinearCopies,
  kLinearTotals,
  kEmbedFormat = 40,
  kEmbedFormatPositions,
  kEmbedHasPositions,
  kUnroundedFormat,
  kUnroundedRows,
  kAttentionHeadSize = 50,
  kAttentionBlockSize,
  kAttentionWindow,
  kAttentionQkNorm,
  kAttentionSimdgroups,
  kAttentionOneSpan,
  kAttentionTurned,
  kAttentionRows,
  kAttentionHeads,
  kAttentionBuffers,
};

// ---- norm, rows, blocks ---------------------------------------------------------------------------------------------

struct NormParams {
  float eps;
  uint32_t dim;
  uint32_t width;  // of a row of the result
  uint32_t slice_rows;  // of a tile of slices that are added to `in` before
};

SHARED_CONSTANT uint32_t kRowThreads = 256;  // of a threadgroup: gather_rows, rope_table, prepare_blocks, expert_sum

struct GatherRowsParams {
  uint32_t dim;
  uint32_t width;  // of a row of the result
};

struct RopeTableParams {
  uint32_t pairs;
  uint32_t count;  // rows * pairs
  float factor;
};

struct PrepareParams {
  uint32_t zeros;
  uint32_t copies;
  uint32_t words;     // 16-byte words of a block
  uint32_t v_offset;  // from the start of K to the start of V, in 16-byte words
};

// The numbers of ingot::PoolOp::Kind.
enum PoolKind : uint32_t { pool_last, pool_mean, pool_first };

struct PoolParams {
  uint32_t dim;
  uint32_t pooled;  // where the list of sequences begins, in words
};

// ---- matrices -------------------------------------------------------------------------------------------------------

// What a kernel is told of a format: a plain one's number, which is that of ingot::DType, or what the codes and scales
// of a block format are like. No kernel knows a block format by its name. Made by packed_format(), linear/pack.h.
enum PackedFormat : uint32_t { packed_f32, packed_f16, packed_bf16 };
// The first bit of each field of a block format, which is therefore above packed_bf16.
enum PackedField : uint32_t {
  kPackedLowBits = 4,   // 4 bits
  kPackedHighBits = 8,  // 4 bits
  kPackedScales = 12,   // 4 bits
  kPackedZero = 16,     // 8 bits
  kPackedNumbers = 24,  // 1: codes stand for the numbers of PackedPlanes
};
// The numbers of ingot::Scales.
enum PackedKind : uint32_t {
  packed_none,
  packed_block,
  packed_block_min,
  packed_super32_min,
  packed_super16,
  packed_super16_six,
  packed_super16_min,
};

// Bytes: from row to row in each plane, from block to block (four units of codes, 256 columns of scales), from the
// start of a panel to the planes after the codes, of a panel. The numbers, if any, that codes of 4 bits stand for: four
// a word. See linear_formats.h.
struct PackedPlanes {
  uint32_t code_stride, high_stride, meta_stride;
  uint32_t code_block, high_block, meta_block;
  uint32_t high_offset, meta_offset;
  uint32_t panel_bytes;
  uint32_t numbers[4];
};

// What becomes of the sums of a product beside an activation.
struct LinearOut {
  uint32_t stride;         // elements from row to row of `out`
  uint32_t type;           // PackedFormat
  uint32_t accumulate;     // 1: out += result
  uint32_t bias, bias_up;  // 1: there is one; a buffer is bound either way
};

// Columns of W that are summed by themselves.
struct LinearColumns {
  PackedPlanes planes;
  uint32_t offset;  // from the start of the buffer to where they are packed, in 16 bytes
  uint32_t first;   // column of x
  uint32_t cols;
  uint32_t slices;         // of a gated product the most of the two matrices
  uint32_t slice_columns;  // of each slice but the last
};

struct LinearParams {
  LinearColumns columns;   // all of W; of one in cuts, the most slices of any of them
  PackedPlanes planes_up;  // of the second matrix
  LinearOut out;
  uint32_t rows;              // of x
  uint32_t x_stride;          // elements from row to row of x
  uint32_t outputs;           // of this dispatch
  uint32_t slice_columns_up;  // of the second matrix
  uint32_t output_groups;     // few rows: threadgroups that cover the outputs once
  uint32_t row_tiles;         // tiles: tiles that cover the rows
  uint32_t item_tiles;        // tiles: those of one item of experts
  // Experts: a row group is an item, [expert, first row], of the list that routing made; its rows of `out` follow each
  // other. Row i of `out` takes row i of x, or row order[i] / per_token when per_token is not 0.
  uint32_t per_token;
  uint32_t first_expert;  // whose rows of W come first
  // Columns that ranks could share are in cuts, LinearColumns each, added as (0 + 1) + (2 + 3): how many there are, and
  // how many of them make the first sum.
  uint32_t cuts, left;
  uint32_t wide_stages, wide_turns;  // stages of weights and turns of x that linear_wide has room for
};

SHARED_CONSTANT uint32_t kUnroundedParts = 8;  // of the columns of a product whose rows are not rounded
SHARED_CONSTANT uint32_t kLinearMostCuts = 4;
SHARED_CONSTANT uint32_t kLinearMostSlices = 8;
SHARED_CONSTANT uint32_t kWideOutputs = 128, kWideThreads = 384;
SHARED_CONSTANT uint32_t kLinearTurn = 64;  // columns that tiles take at a time at most; slices are whole turns
// Tiles: elements from row to row of 32 columns in threadgroup memory. Loads of 8 by 8 matrices find such rows in banks
// of their own, those of 16 bytes a lane rows without a gap.
SHARED_CONSTANT uint32_t kLinearTileStride = 40, kLinearCopiedStride = 32;
SHARED_CONSTANT uint32_t kLinearAddThreads = 256;
SHARED_CONSTANT uint32_t kLinearResultGap = 4;  // floats between rows of results in threadgroup memory

struct EmbedParams {
  PackedPlanes planes, planes_positions;
  uint32_t cols;
  uint32_t first;  // rows [first, first + rows) of the table are in this buffer; others are left alone
  uint32_t rows;
  uint32_t rows_positions;
  float scale;
  uint32_t here, rows_here;  // of a table that ranks share, the rows that this one has
  uint32_t zeros;            // 1: rows of other tokens become zeros
};

// Rows in the order in which products take their columns, filled up with zeros to whole turns.
struct GemmUnpackParams {
  PackedPlanes planes;
  uint32_t cols;
  uint32_t x_stride;   // of x: elements from row to row
  uint32_t first_row;  // of W, or of x
  uint32_t rows;
};

struct GemmFinishParams {
  LinearOut out;
  uint32_t rows;
  uint32_t outputs;
  uint32_t width;  // of a row of sums
};

SHARED_CONSTANT uint32_t kGemmSimdgroups = 8, kGemmFinishThreads = 256;

// ---- experts --------------------------------------------------------------------------------------------------------

SHARED_CONSTANT uint32_t kMaxExperts = 512;
SHARED_CONSTANT uint32_t kMaxExpertsPerToken = 32;
SHARED_CONSTANT uint32_t kSortThreads = 256;
SHARED_CONSTANT uint32_t kRouteFewThreads = 512;
SHARED_CONSTANT uint32_t kRouteFewPairs = 512;  // at most, of route_few

SHARED_CONSTANT uint32_t kExpertGroups = 4;  // whose sums are added two by two

struct RouteParams {
  uint32_t rows, experts, per_token;
  uint32_t item_rows;    // most rows of an item
  uint32_t first, here;  // the experts of this rank
};

struct ExpertSumParams {
  uint32_t dim, per_token, experts;
  uint32_t first, here;  // the experts of this rank
  uint32_t accumulate;   // 1: out += the sum
};

// ---- ranks ----------------------------------------------------------------------------------------------------------

// Words of one buffer, or of two: the first part of `first`, the others of `rest`, one after the other.
struct AddPartsParams {
  uint32_t count;        // words of a part
  uint32_t stride;       // from part to part of `rest`
  uint32_t left, right;  // how many parts are added before the two sums are
  uint32_t dim;          // of the bias
  uint32_t bias, accumulate;
};

struct PlaceColumnsParams {
  uint32_t width, stride, first;  // of the columns, of a row of `out`, and where they go in it
};

// ---- attention ------------------------------------------------------------------------------------------------------

SHARED_CONSTANT uint32_t kSpan = 64;  // keys
SHARED_CONSTANT uint32_t kMaxHeadSize = 256;
SHARED_CONSTANT uint32_t kPrefillMostThreads = 256;  // of prefill_attention_shared and prefill_attention_tiles

SHARED_CONSTANT uint32_t kQuadsRows = 128, kQuadsThreads = 384;  // of prefill_attention_wide
SHARED_CONSTANT uint32_t kQuadsBuffers = 4;  // of spans of keys, and of values, that are on their way or in use

struct AttentionParams {
  float scale;  // of q . k, times log2(e)
  float norm_eps;
  uint32_t heads, kv_heads;
  uint32_t group,
      skipped;  // query heads a KV head, on all ranks; those of the first one that lie before the first here
  uint32_t rope_dims;
  uint32_t split;        // keys a split: the span times a power of two
  uint32_t piece;        // decode: keys a threadgroup, the span or the split
  uint32_t max_blocks;   // row length of the block table
  uint32_t max_pieces;   // row length of the partial results
  uint32_t cache_ready;  // decode: no dispatch of this step writes the cache but for the new keys
  uint32_t first_row;    // prefill: first row of the step it looks at
  uint32_t first_seq;    // prefill: first sequence
  uint32_t first_tile;   // prefill: first tile of query rows
};

// ---- sampling -------------------------------------------------------------------------------------------------------

SHARED_CONSTANT uint32_t kSampleThreads = 256;
SHARED_CONSTANT uint32_t kSampleChunk = 4096;  // tokens whose statistics one threadgroup takes
SHARED_CONSTANT uint32_t kSampleMaxTop = 256;

// StagedSampling of step/staged.h, field by field.
struct SampleParams {
  float temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  int32_t top_k;
  int32_t slot;
  uint64_t seed;
  int32_t position;
  int32_t kind;
  int32_t top;
  int32_t target;
  int32_t min_tokens;
  int32_t stop_offset, stop_count;
  int32_t bias_offset, bias_count;
  int32_t allowed_offset, allowed_count;
  int32_t bad_offset, bad_count;
  int32_t mask_offset;
  int32_t logits_row;
  int32_t draft_offset, draft_count;
};

// Statistics of one chunk of one row's raw logits.
struct SampleChunk {
  uint32_t best_key;
  uint32_t best_id;
  uint32_t nan;  // 1: there is one
  float sum;     // of exp(logit - best)
};

// Where the step's outputs lie, in bytes: OutputLayout of step/output.h.
struct SampleOutput {
  uint32_t rows, chunks, max_top, max_tokens;
  uint64_t tokens, logprobs, ranks, top_ids, top_values, logits;
  uint32_t last_offset;  // where this step's tokens go among the last ones
  uint32_t vocab;
};

struct SampleResetParams {
  uint32_t max_tokens, vocab;
};

#undef SHARED_CONSTANT
#ifndef __METAL_VERSION__
static_assert(sizeof(NormParams) == 16 && sizeof(GatherRowsParams) == 8 && sizeof(RopeTableParams) == 12 &&
              sizeof(PrepareParams) == 16 && sizeof(PoolParams) == 8);
static_assert(sizeof(PackedPlanes) == 52 && sizeof(LinearColumns) == 72 && sizeof(LinearParams) == 196 &&
              sizeof(EmbedParams) == 136 && sizeof(GemmUnpackParams) == 68 && sizeof(GemmFinishParams) == 32);
static_assert(sizeof(RouteParams) == 24 && sizeof(ExpertSumParams) == 24 && sizeof(AddPartsParams) == 28 &&
              sizeof(PlaceColumnsParams) == 12 && sizeof(AttentionParams) == 60);
static_assert(sizeof(SampleParams) == 112 && sizeof(SampleChunk) == 16 && sizeof(SampleOutput) == 72 &&
              sizeof(SampleResetParams) == 8);
}  // namespace ingot::metal
#endif
