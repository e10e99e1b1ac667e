#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/metal/kernels/params.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/memory.h"
#include "backend/op.h"
#include "core/dtype.h"

namespace ingot::metal {

struct Context;

// What a threadgroup of decode attention takes of a sequence. Results are the same to the bit.
enum class AttentionCut { spans, splits, whole };
// Instead of what the number of rows and their lengths ask for; for tests.
inline std::optional<AttentionCut> tried_cut;

// Prefill: simdgroups have eight rows each, or share keys, values and dims of all their rows, or have 16 or 32 rows
// each and share keys and values in threadgroup memory, or have 16 and multiply four together. The same to the bit,
// too.
enum class PrefillWay { own_rows, shared, tiles, wide };
// Instead of what the GPU asks for; for tests.
inline std::optional<PrefillWay> tried_prefill;
// A threadgroup of the last way. `heads` of one KV head have the same positions; `buffers` of spans of keys or values:
// 1, 2 or 4.
struct PrefillTiles {
  int64_t simdgroups, rows, heads, buffers;
};
inline std::optional<PrefillTiles> tried_tiles;

// A dispatch of prefill attention: what a threadgroup takes, and what it needs for that.
struct PrefillPlan {
  PrefillWay way;
  int64_t simdgroups;
  int64_t rows;  // those of each head
  int64_t heads = 1;
  int64_t buffers = 1;
  size_t threadgroup_bytes;

  int64_t positions() const { return rows / heads; }
};

// Encodes attention over one cache. Long sequences are cut into splits at fixed positions; their partial results live
// in memory of its own, made in a rehearsal.
class Attention {
 public:
  // `max_length`: the longest sequence there can be; with it the length of a split is chosen.
  Attention(const KvCache& cache, DType activation, int64_t max_length);

  void decode(const AttentionOp& op, Context& context);
  void prefill_write(const AttentionOp& op, Context& context);
  void prefill(const AttentionOp& op, Context& context);

 private:
  bool shared(const AttentionShape& shape) const;
  AttentionCut cut(const AttentionShape& shape, int64_t rows, int64_t longest) const;
  void decode(const AttentionOp& op, Context& context, AttentionCut cut);
  AttentionParams params(const AttentionOp& op, const Context& context) const;
  bool tiled(const AttentionShape& shape) const;
  bool wide(const AttentionShape& shape, const Context& context) const;
  PrefillPlan plan_wide(const AttentionShape& shape) const;
  PrefillPlan plan_tiles(const AttentionShape& shape, const Context& context) const;
  PrefillPlan plan_prefill(const AttentionShape& shape, const Context& context) const;
  void reserve(Context& context, size_t bytes);

  const KvCache& cache_;
  std::string decode_name_, shared_name_, roomy_name_, write_name_, prefill_name_, prefill_shared_name_,
      prefill_tiles_name_, prefill_wide_name_;
  int64_t split_ = 0;
  // Sums f32 [D, heads, pieces, head size], then (largest score, sum of weights) [D, heads, pieces].
  BufferPtr partial_;
  size_t partial_bytes_ = 0;
};

}  // namespace ingot::metal
