#include "backend/metal/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/metal/linear/plan.h"
#include "backend/metal/ops.h"

namespace ingot::metal {
namespace {

constexpr int64_t kShortestSplit = 256;  // four spans
constexpr int64_t kMostSplits = 64;      // of one sequence
// Of decode attention, found on a GPU of 132 multiprocessors: up to so many spans of all KV heads and sequences get a
// threadgroup each; with so many KV heads of sequences or more, whole sequences do, if none is longer than those keys.
constexpr int64_t kFewSpans = 1280, kManyGroups = 384, kWholeKeys = 1024;
constexpr size_t kThreadgroupBytes = 32768;
constexpr size_t kStaticBytes = 8 * 8 * 8;                             // of decode_attention
constexpr size_t kPrefillStaticBytes = 4 * kPrefillMostThreads + 256;  // of prefill_attention_shared, and more
constexpr size_t kTilesStaticBytes = 64;                               // of prefill_attention_tiles, and more
// Multiplications in one dispatch of prefill: some ten milliseconds.
constexpr double kMostOperations = 5e10, kMostTiledOperations = 1e12;

// Of the numbers that products are made of: those of the cache, but halves for integers.
size_t number_bytes(KvType cache) { return cache == KvType::int8 ? 2 : kv_element_bytes(cache); }

// Threadgroup memory of one simdgroup beside q: scores or sums, weights, and a corner for cut tiles.
size_t own_bytes(int64_t head_size, size_t element) {
  return static_cast<size_t>(8 * std::max(int64_t{kSpan} + 16, head_size + 8)) * 4 +
         static_cast<size_t>(8 * (kSpan + 8) + 256) * element;
}
size_t q_bytes(int64_t head_size, size_t element) { return static_cast<size_t>(8 * head_size) * element; }

// Of decode_attention_shared: q, the new key and value, scores and scales twice, and of each simdgroup its sums,
// weights and corner.
size_t shared_bytes(int64_t head_size, int64_t simdgroups, size_t element) {
  return static_cast<size_t>(10 * head_size) * element + static_cast<size_t>(2 * (8 * (kSpan + 16) + 2 * kSpan)) * 4 +
         static_cast<size_t>(simdgroups) * (static_cast<size_t>(8 * (head_size / simdgroups + 4)) * 4 +
                                            static_cast<size_t>(8 * (kSpan + 8) + 256) * element);
}

// Of prefill_attention_shared: q, a corner of each simdgroup, scores and weights, or eight rows of results in their
// place.
size_t prefill_bytes(int64_t head_size, int64_t simdgroups, int64_t rows, size_t element) {
  return static_cast<size_t>(rows * (head_size + 8) + simdgroups * 256) * element +
         std::max(static_cast<size_t>(rows) * (static_cast<size_t>(kSpan + 16) * 4 + (kSpan + 8) * element),
                  static_cast<size_t>(8 * (head_size + 8)) * 4);
}

// Of prefill_attention_tiles: q, keys and values of a span, sums, scales, and, where
// matrices are not what lanes hold, a corner of each simdgroup.
size_t tiles_bytes(int64_t head_size, const PrefillTiles& tiles, bool scales, bool corners) {
  const int64_t numbers = tiles.rows * head_size + tiles.buffers * kSpan * (head_size + 8);
  return static_cast<size_t>(numbers * 2 + tiles.rows * head_size * 4 +
                             (scales ? (tiles.buffers == 4 ? 4 : 2) * kSpan * 4 : 0) +
                             (corners ? tiles.simdgroups * 512 : 0));
}

// Of prefill_attention_wide: keys and values of some spans, sums, q, and four barriers a span.
size_t wide_bytes(int64_t head_size) {
  return static_cast<size_t>(2 * kQuadsBuffers * kSpan * head_size * 2 + kQuadsRows * head_size * 6 +
                             4 * kQuadsBuffers * 8);
}

// How many heads of one KV head have the same positions in a threadgroup: as many as possible, as rows then see nearly
// the same keys.
int64_t heads_together(const AttentionShape& shape, int64_t most) {
  int64_t heads = most;
  while (heads > 1 && shape.group() % heads + shape.skipped % heads + shape.heads % heads != 0) heads /= 2;
  return heads;
}

// Of so many partial results: sums, then (largest score, sum of weights).
size_t partial_bytes(const AttentionShape& shape, int64_t results) {
  return static_cast<size_t>(std::max<int64_t>(results * (shape.head_size * 4 + 8), 16));
}

Constant turned(const AttentionShape& shape) {
  return Constant::b(kAttentionTurned, shape.rope_dims == shape.head_size && shape.head_size % 64 == 0);
}

std::string kernel_name(const char* kernel, DType activation, KvType cache) {
  return std::string(kernel) + "_" + std::string(dtype_name(activation)) + "_" + std::string(kv_type_name(cache));
}

// A model without rotation has no table; something must be bound all the same.
BufferView rope_view(const AttentionOp& op, const Context& context, int64_t rows) {
  return op.shape.rope_dims > 0 ? context.words(op.rope, rows * op.shape.rope_dims) : context.words(op.qkv, 0);
}

}  // namespace

void encode(const AttentionOp& op, Context& context) {
  switch (op.part) {
    case AttentionOp::Part::decode: return context.attention->decode(op, context);
    case AttentionOp::Part::prefill_write: return context.attention->prefill_write(op, context);
    case AttentionOp::Part::prefill: return context.attention->prefill(op, context);
  }
}

Attention::Attention(const KvCache& cache, DType activation, int64_t max_length)
    : cache_(cache),
      decode_name_(kernel_name("decode_attention", activation, cache.layout().dtype)),
      shared_name_(kernel_name("decode_attention_shared", activation, cache.layout().dtype)),
      roomy_name_(kernel_name("decode_attention_roomy", activation, cache.layout().dtype)),
      write_name_(kernel_name("prefill_write", activation, cache.layout().dtype)),
      prefill_name_(kernel_name("prefill_attention", activation, cache.layout().dtype)),
      prefill_shared_name_(kernel_name("prefill_attention_shared", activation, cache.layout().dtype)),
      prefill_tiles_name_(kernel_name("prefill_attention_tiles", activation, cache.layout().dtype)),
      prefill_wide_name_(kernel_name("prefill_attention_wide", activation, cache.layout().dtype)) {
  split_ = kShortestSplit;
  while (split_ * kMostSplits < max_length) split_ *= 2;
}

AttentionParams Attention::params(const AttentionOp& op, const Context& context) const {
  AttentionParams p{};
  p.scale = op.shape.scale * 1.44269504f;  // log2(e): the kernels work in powers of two
  p.norm_eps = op.norm_eps;
  p.heads = static_cast<uint32_t>(op.shape.heads);
  p.kv_heads = static_cast<uint32_t>(op.shape.kv_heads);
  p.group = static_cast<uint32_t>(op.shape.group());
  p.skipped = static_cast<uint32_t>(op.shape.skipped);
  p.rope_dims = static_cast<uint32_t>(op.shape.rope_dims);
  p.split = static_cast<uint32_t>(split_);
  p.max_blocks = static_cast<uint32_t>(context.step.max_blocks);
  return p;
}

void Attention::reserve(Context& context, size_t bytes) {
  if (bytes <= partial_bytes_) return;
  partial_ = context.memory.new_private(bytes, "work attention");
  partial_bytes_ = bytes;
  context.memory.commit_residency();
}

// decode_attention_shared is for these.
bool Attention::shared(const AttentionShape& shape) const {
  return number_bytes(cache_.layout().dtype) == 2 && shape.group() <= 8 &&
         (shape.head_size == 64 || shape.head_size == 128 || shape.head_size == 256);
}

AttentionCut Attention::cut(const AttentionShape& shape, int64_t rows, int64_t longest) const {
  const int64_t groups = rows * shape.kv_heads, spans = (longest + kSpan - 1) / kSpan;
  if (!shared(shape) || longest <= kShortestSplit) return AttentionCut::splits;
  if (tried_cut) return *tried_cut;
  if (groups * spans <= kFewSpans) return AttentionCut::spans;
  return groups >= kManyGroups && longest <= kWholeKeys ? AttentionCut::whole : AttentionCut::splits;
}

void Attention::decode(const AttentionOp& op, Context& context) {
  const StagedStep& step = context.step;
  const AttentionShape& shape = op.shape;
  const int64_t rows = step.decode_rows, longest = std::max<int64_t>(step.max_seq_len, 1);
  if (!context.encoder.rehearsing()) return decode(op, context, cut(shape, rows, longest));
  // Another step may be cut in another way.
  const int64_t splits = (longest + split_ - 1) / split_;
  reserve(context, partial_bytes(shape, splits > 1 ? rows * shape.heads * splits : 0));
  decode(op, context, AttentionCut::splits);
  if (!shared(shape) || longest <= kShortestSplit) return;
  reserve(context, partial_bytes(shape, kFewSpans * shape.group()));
  decode(op, context, AttentionCut::spans);
}

void Attention::decode(const AttentionOp& op, Context& context, AttentionCut cut) {
  const StagedStep& step = context.step;
  const AttentionShape& shape = op.shape;
  const KvLayout& layout = cache_.layout();
  const int64_t rows = step.decode_rows, longest = std::max<int64_t>(step.max_seq_len, 1);
  const int64_t piece = cut == AttentionCut::spans ? kSpan : cut == AttentionCut::whole ? kWholeKeys : split_;
  const int64_t pieces = (longest + piece - 1) / piece;
  const size_t element = number_bytes(layout.dtype);
  const size_t results = static_cast<size_t>(rows * shape.heads * pieces);
  const size_t sums_bytes = results * static_cast<size_t>(shape.head_size) * 4;
  if (!context.encoder.rehearsing())
    reserve(context, partial_bytes(shape, pieces > 1 ? rows * shape.heads * pieces : 0));

  int64_t simdgroups = 4;
  size_t memory = 0;
  if (shared(shape)) {
    simdgroups = shape.head_size == 64 ? 2 : 4;
    memory = shared_bytes(shape.head_size, simdgroups, element);
  } else {
    const auto bytes = [&] {
      return q_bytes(shape.head_size, element) + static_cast<size_t>(simdgroups) * own_bytes(shape.head_size, element);
    };
    while (simdgroups > 1 && bytes() + kStaticBytes > kThreadgroupBytes) simdgroups /= 2;
    memory = bytes();
  }

  AttentionParams params = this->params(op, context);
  params.piece = static_cast<uint32_t>(piece);
  params.max_pieces = static_cast<uint32_t>(pieces);
  params.cache_ready = step.zeros + step.copies == 0;
  const BufferView sums{partial_.get(), 0, pieces > 1 ? sums_bytes : 16};
  const BufferView totals{partial_.get(), pieces > 1 ? sums_bytes : 0, pieces > 1 ? results * 8 : 16};
  const BufferView out = context.activations(op.out, rows * shape.out_width());

  Encoder& encoder = context.encoder;
  encoder.use(!shared(shape)           ? decode_name_
              : shape.head_size == 128 ? shared_name_
                                       : roomy_name_,
              {Constant::u(kAttentionHeadSize, shape.head_size), Constant::u(kAttentionBlockSize, layout.block_size),
               Constant::u(kAttentionWindow, shape.window), Constant::b(kAttentionQkNorm, bool(op.q_norm)),
               Constant::u(kAttentionSimdgroups, simdgroups),
               Constant::b(kAttentionOneSpan, cut == AttentionCut::spans), turned(shape)});
  encoder.read(0, context.activations(op.qkv, rows * shape.qkv_width()));
  encoder.read(1, rope_view(op, context, rows));
  encoder.update(2, cache_.part(op.layer, false));
  encoder.update(3, cache_.part(op.layer, true));
  encoder.read(4, context.staged(step.block_table));
  encoder.read(5, context.staged(step.seq_lens));
  encoder.write(6, out);
  if (pieces > 1) {
    encoder.write(7, sums);
    encoder.write(8, totals);
  } else {
    encoder.weight(7, sums);  // bound, never touched
    encoder.weight(8, totals);
  }
  if (op.q_norm) encoder.weight(9, context.vector(op.q_norm));
  if (op.k_norm) encoder.weight(10, context.vector(op.k_norm));
  encoder.value(11, params);
  encoder.threadgroup_memory(0, memory);
  encoder.dispatch(
      {static_cast<NS::UInteger>(shape.kv_heads), static_cast<NS::UInteger>(rows), static_cast<NS::UInteger>(pieces)},
      {static_cast<NS::UInteger>(simdgroups) * 32, 1, 1});
  if (pieces == 1) return;

  encoder.use(context.activation == DType::f16 ? "decode_attention_merge_f16" : "decode_attention_merge_bf16",
              {Constant::u(kAttentionHeadSize, shape.head_size), Constant::u(kAttentionWindow, shape.window),
               Constant::b(kAttentionOneSpan, cut == AttentionCut::spans)});
  encoder.read(0, context.staged(step.seq_lens));
  encoder.read(1, sums);
  encoder.read(2, totals);
  encoder.write(3, out);
  encoder.value(4, params);
  encoder.dispatch({static_cast<NS::UInteger>(shape.heads), static_cast<NS::UInteger>(rows), 1},
                   {static_cast<NS::UInteger>((shape.head_size + 31) / 32 * 32), 1, 1});
}

void Attention::prefill_write(const AttentionOp& op, Context& context) {
  const StagedStep& step = context.step;
  const AttentionShape& shape = op.shape;
  const int64_t rows = step.tokens - step.decode_rows;
  const int64_t heads = shape.heads + 2 * shape.kv_heads;
  AttentionParams params = this->params(op, context);
  params.first_row = static_cast<uint32_t>(step.decode_rows);

  Encoder& encoder = context.encoder;
  encoder.use(write_name_, {Constant::u(kAttentionHeadSize, shape.head_size),
                            Constant::u(kAttentionBlockSize, cache_.layout().block_size),
                            Constant::b(kAttentionQkNorm, bool(op.q_norm)), turned(shape)});
  // Bound from the start; only the rows behind the decode rows are touched.
  encoder.update_part(0, context.activations(op.qkv, step.tokens * shape.qkv_width()),
                      static_cast<size_t>(step.decode_rows * shape.qkv_width()) * 2);
  encoder.read(1, rope_view(op, context, step.tokens));
  encoder.update(2, cache_.part(op.layer, false));
  encoder.update(3, cache_.part(op.layer, true));
  encoder.read(4, context.staged(step.slots));
  if (op.q_norm) encoder.weight(5, context.vector(op.q_norm));
  if (op.k_norm) encoder.weight(6, context.vector(op.k_norm));
  encoder.value(7, params);
  encoder.dispatch({static_cast<NS::UInteger>((heads + 3) / 4), static_cast<NS::UInteger>(rows), 1}, {128, 1, 1});
}

// prefill_attention_tiles is for these.
bool Attention::tiled(const AttentionShape& shape) const {
  return number_bytes(cache_.layout().dtype) == 2 && (shape.head_size == 64 || shape.head_size == 128);
}

PrefillPlan Attention::plan_tiles(const AttentionShape& shape, const Context& context) const {
  const bool scales = cache_.layout().dtype == KvType::int8, corners = context.family != kNvidiaFamily;
  const auto bytes = [&](const PrefillTiles& tiles) { return tiles_bytes(shape.head_size, tiles, scales, corners); };
  // The first that fits.
  PrefillTiles chosen{};
  for (const PrefillTiles& tiles :
       {PrefillTiles{8, 128, 1, 4}, {8, 128, 1, 2}, {4, 64, 1, 2}, {2, 32, 1, 2}, {1, 16, 1, 1}}) {
    chosen = tiles;
    if (bytes(tiles) + kTilesStaticBytes <= context.threadgroup_bytes) break;
  }
  chosen.heads = heads_together(shape, chosen.simdgroups);
  chosen = tried_tiles.value_or(chosen);
  return {.way = PrefillWay::tiles,
          .simdgroups = chosen.simdgroups,
          .rows = chosen.rows,
          .heads = chosen.heads,
          .buffers = chosen.buffers,
          .threadgroup_bytes = bytes(chosen)};
}

// prefill_attention_wide is for these.
bool Attention::wide(const AttentionShape& shape, const Context& context) const {
  return context.wide.cores() > 0 && tiled(shape) && cache_.layout().dtype != KvType::int8 &&
         wide_bytes(shape.head_size) + kTilesStaticBytes <= context.threadgroup_bytes;
}

PrefillPlan Attention::plan_wide(const AttentionShape& shape) const {
  return {.way = PrefillWay::wide,
          .simdgroups = kQuadsThreads / 32,
          .rows = kQuadsRows,
          .heads = heads_together(shape, kQuadsRows / 16),
          .threadgroup_bytes = wide_bytes(shape.head_size)};
}

// GPUs that load and multiply many matrices at a time have registers for eight rows of all dims; others share.
PrefillPlan Attention::plan_prefill(const AttentionShape& shape, const Context& context) const {
  const size_t element = number_bytes(cache_.layout().dtype);
  const PrefillWay own = wide(shape, context) ? PrefillWay::wide
                         : tiled(shape)       ? PrefillWay::tiles
                                              : PrefillWay::own_rows;
  const PrefillWay way = context.family == kNvidiaFamily ? own : PrefillWay::shared;
  PrefillPlan plan{.way = tried_prefill.value_or(way), .simdgroups = 4, .rows = 32, .threadgroup_bytes = 0};
  if (plan.way == PrefillWay::wide) return plan_wide(shape);
  if (plan.way == PrefillWay::tiles) return plan_tiles(shape, context);
  if (plan.way == PrefillWay::own_rows) {
    const size_t own = own_bytes(shape.head_size, element) + q_bytes(shape.head_size, element);
    while (plan.simdgroups > 1 && static_cast<size_t>(plan.simdgroups) * own > kThreadgroupBytes) plan.simdgroups /= 2;
    plan.rows = 8 * plan.simdgroups;
    plan.threadgroup_bytes = static_cast<size_t>(plan.simdgroups) * own;
    return plan;
  }
  // As many sums as registers of M1 hold twice, beside those of a span: 32 rows by 16 dims a simdgroup, or 16 by 32.
  if (shape.head_size > 64) plan.simdgroups = 8;
  if (shape.head_size > 128) plan.rows = 16;
  const auto bytes = [&] { return prefill_bytes(shape.head_size, plan.simdgroups, plan.rows, element); };
  while (plan.rows > 8 && bytes() + kPrefillStaticBytes > kThreadgroupBytes) plan.rows /= 2;
  plan.threadgroup_bytes = bytes();
  return plan;
}

void Attention::prefill(const AttentionOp& op, Context& context) {
  const StagedStep& step = context.step;
  const AttentionShape& shape = op.shape;
  const PrefillPlan plan = plan_prefill(shape, context);

  AttentionParams params = this->params(op, context);
  params.first_seq = static_cast<uint32_t>(step.decode_rows);
  const int64_t seqs = step.seqs - step.decode_rows;
  const bool tiled = plan.way == PrefillWay::tiles || plan.way == PrefillWay::wide;
  const int64_t positions = plan.positions(), tiles = (step.max_query_len + positions - 1) / positions;
  const int64_t visible =
      shape.window > 0 ? std::min<int64_t>(step.max_seq_len, shape.window + positions) : step.max_seq_len;
  const double tile_operations = 2.0 * static_cast<double>(positions * shape.heads * shape.head_size) *
                                 static_cast<double>(visible) * static_cast<double>(std::max<int64_t>(seqs, 1));
  const double most = tiled ? kMostTiledOperations : kMostOperations;
  const int64_t tiles_at_once =
      std::clamp<int64_t>(static_cast<int64_t>(most / std::max(tile_operations, 1.0)), 1, tiles);

  Encoder& encoder = context.encoder;
  for (int64_t first = 0; first < tiles; first += tiles_at_once) {
    params.first_tile = static_cast<uint32_t>(first);
    encoder.use(
        plan.way == PrefillWay::wide       ? prefill_wide_name_
        : tiled                            ? prefill_tiles_name_
        : plan.way == PrefillWay::own_rows ? prefill_name_
                                           : prefill_shared_name_,
        {Constant::u(kAttentionHeadSize, shape.head_size), Constant::u(kAttentionBlockSize, cache_.layout().block_size),
         Constant::u(kAttentionWindow, shape.window), Constant::u(kAttentionSimdgroups, plan.simdgroups),
         Constant::u(kAttentionRows, plan.rows), Constant::u(kAttentionHeads, plan.heads),
         Constant::u(kAttentionBuffers, plan.buffers)});
    encoder.read(0, context.activations(op.qkv, step.tokens * shape.qkv_width()));
    encoder.read(1, cache_.part(op.layer, false));
    encoder.read(2, cache_.part(op.layer, true));
    encoder.read(3, context.staged(step.block_table));
    encoder.read(4, context.staged(step.query_start));
    encoder.read(5, context.staged(step.seq_lens));
    // A later part of the same operation writes other rows.
    const BufferView out = context.activations(op.out, step.tokens * shape.out_width());
    if (first == 0) {
      encoder.update_part(6, out, static_cast<size_t>(step.decode_rows * shape.out_width()) * 2);
    } else {
      encoder.weight(6, out);
    }
    encoder.value(7, params);
    encoder.threadgroup_memory(0, plan.threadgroup_bytes);
    const auto at_once = static_cast<NS::UInteger>(std::min(tiles_at_once, tiles - first)),
               heads = static_cast<NS::UInteger>(shape.heads / plan.heads), sequences = static_cast<NS::UInteger>(seqs);
    encoder.dispatch(tiled ? MTL::Size(heads, at_once, sequences) : MTL::Size(at_once, heads, sequences),
                     {static_cast<NS::UInteger>(plan.simdgroups) * 32, 1, 1});
  }
}

}  // namespace ingot::metal
