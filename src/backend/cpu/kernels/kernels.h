#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kv_type.h"

// The vector kernels of every operation but the matrix products, one set an instruction set. A set is one translation
// unit built with that set's flags; everything in it lives in a namespace named after it, and nothing from the standard
// library is instantiated there, so that no code built for a newer CPU can be linked into a path meant for an older
// one.
namespace ingot::cpu {

// Attention walks keys in tiles of 64 and keeps one softmax state a split of 256, both at fixed absolute positions: the
// arithmetic of a row depends on its position alone, not on how the step was cut. Partial states are merged in order.
inline constexpr int kTileKeys = 64;
inline constexpr int kSplitKeys = 256;
inline constexpr int kMaxAttentionRows = 96;  // query rows (tokens x heads of a group) of one call

// A softmax state: the weighted sum of values, padded_head(head_size) floats; the largest score (a power of two); the
// sum of the weights.
static inline constexpr int64_t padded_head(int64_t head_size) { return (head_size + 15) / 16 * 16; }
static inline constexpr int64_t softmax_stride(int64_t head_size) { return padded_head(head_size) + 16; }

// Positions [from, to] of one sequence, in one layer of the cache from a KV head on. blocks null: none.
struct CacheRange {
  const void* keys = nullptr;
  const void* values = nullptr;
  const int32_t* blocks = nullptr;
  int64_t from = 0, to = 0;
};

struct AttentionArgs {
  // One layer of the cache from a KV head on, and one sequence's blocks. Inside a block keys are [head_size,
  // block_size] (so that neighbouring keys are neighbours in memory) and values [block_size, head_size]; int8: then
  // scales [block_size].
  const void* keys;
  const void* values;
  int64_t block_stride;   // elements from a block to the next
  const int32_t* blocks;  // physical block of each logical one
  int32_t block_size;     // a multiple of 8
  int32_t head_size;      // a multiple of 8, at most 512
  KvType type;
  int64_t reads_to;  // the last position that the caller has read, in this call and the next ones; -1: soon read again
  CacheRange next;   // what is read after that; its first tile is asked for meanwhile

  int32_t heads;         // KV heads, whose queries see the same positions
  int64_t head_stride;   // elements from a KV head to the next
  int32_t rows;          // of each of them; at most kMaxAttentionRows for all
  const float* q;        // [heads, rows, head_size], rotated, times scale * log2(e)
  const int32_t* first;  // [rows] first and last position each row sees
  const int32_t* last;

  float* key_tile;    // scratch [head_size, kTileKeys]
  float* value_tile;  // scratch [kTileKeys, padded_head], zeros at first
  float* weights;     // scratch [rows, kTileKeys]
};

struct Kernels {
  // out = in / rms(in) * weight (+ bias); weight may be null. All [dim].
  void (*rms_norm)(const float* in, const float* weight, const float* bias, float eps, int64_t dim, float* out);
  void (*layer_norm)(const float* in, const float* weight, const float* bias, float eps, int64_t dim, float* out);

  // Rotates the pairs (i, i + dims / 2) of one head, in place; cos_sin is [dims / 2, 2].
  void (*rotate)(float* head, const float* cos_sin, int64_t dims);
  // Rounds one head's key and value to the cache's type and stores them at `offset` of a block.
  void (*store_kv)(const float* key, const float* value, void* key_block, void* value_block, int64_t head_size,
                   int64_t block_size, int64_t offset, KvType type);

  // Softmax states [heads, rows, softmax_stride] over the keys of one split that each row sees.
  void (*attend_split)(const AttentionArgs& args, int64_t split, float* states);
  bool reads_cache_directly;  // a few rows need no converted tile
  // total (+)= part, both [rows, softmax_stride]. A total starts with its largest score at -infinity and zeros.
  void (*merge_states)(float* total, const float* part, int64_t rows, int64_t head_size);
  // out = weighted sum / sum, one row.
  void (*finish_state)(const float* state, int64_t head_size, float* out);

  // The largest of each 64 consecutive values (the last group may be short), and whether any value is NaN.
  bool (*group_maxima)(const float* values, int64_t n, float* maxima);
  // out[i] = exp((values[i] - shift) * scale), 0 where that exponent is under `floor`; returns the sum. out may be
  // null.
  double (*exp_row)(const float* values, int64_t n, float shift, float scale, float floor, float* out);
  // The sum of the weights that are at least `limit`.
  double (*sum_above)(const float* weights, int64_t n, float limit);
  // How many values are greater than `limit`.
  int64_t (*count_greater)(const float* values, int64_t n, float limit);
};

inline constexpr int64_t kMaximaGroup = 64;

namespace portable {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}
namespace neon {
const Kernels& kernels();
}

}  // namespace ingot::cpu
