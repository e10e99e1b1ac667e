#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>

#include "backend/inventory.h"
#include "backend/kinds.h"

// The operations of a step, as data. check() tells the device's inventory what an operation touches, throws when that
// does not fit together, and returns whether there is anything to do.
//
// T rows, S sequences, R sampled rows, D decode rows: those of Inventory::step.
namespace ingot {

// What comes before a step: blocks are saved, loaded, zeroed, then copied, in order; sampler slots are reset.
struct PrepareOp {
  bool check(Inventory& has) const {
    const bool blocks = has.step.saves + has.step.loads + has.step.zeros + has.step.copies > 0;
    if (blocks) has.blocks();
    return blocks || (has.sampler && has.step.resets > 0);
  }
};

// residual[t, :] = table[token_ids[t], :] * scale (+ position_table[positions[t], :])
struct EmbedOp {
  WeightId table;           // [vocab, hidden]
  WeightId position_table;  // optional [max_position, hidden]
  float scale = 1.0f;
  Region out;  // f32 [T, hidden]
  // Of a table that ranks share this one has the rows from here on; rows of other tokens become zeros. -1: it has all.
  int64_t first = -1;

  bool check(Inventory& has) const {
    const int64_t tokens = has.step.tokens;
    const WeightSize& size = has.matrix(table);
    if (position_table) has.matrix(position_table, size.cols);
    has.words(out, tokens * size.cols);
    has.times.weight_bytes += size.bytes / static_cast<size_t>(size.rows) * static_cast<size_t>(tokens);
    return tokens > 0;
  }
};

// A table that takes no memory of a device: the host reads its rows where they are stored.
class RowTable {
 public:
  virtual ~RowTable() = default;
  // out = what EmbedOp gives for this token at this position. From any thread.
  virtual void read(int64_t token, int64_t position, float scale, float* out) const = 0;
  // What was read need not stay in memory. Nobody reads meanwhile.
  virtual void drop() const = 0;
};

// EmbedOp of such a table. No token of the step is one that the step before drew.
struct ReadRowsOp {
  const RowTable* table = nullptr;
  float scale = 1.0f;
  int64_t rows = 0, dim = 0;
  Region out;  // f32 [rows, dim]

  bool check(Inventory& has) const {
    has.words(out, rows * dim);
    return rows > 0;
  }
};

// cos and sin of every rotating pair, once a step: out[t, i] = (cos, sin)(positions[t] * inv_freq[i]) * factor
struct RopeTableOp {
  WeightId inv_freq;  // f32 [rope_dims / 2]
  float factor = 1.0f;
  Region out;  // f32 [T, rope_dims / 2, 2]

  bool check(Inventory& has) const {
    has.words(out, has.step.tokens * has.vector(inv_freq) * 2);
    return has.step.tokens > 0;
  }
};

// out = norm(in) * weight (+ bias), or out += ... into the residual stream
struct NormOp {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
  int64_t rows = 0, dim = 0;
  Region in;        // f32 [rows, dim], the residual stream
  WeightId weight;  // [dim]
  WeightId bias;    // optional
  Region out;       // activation [rows, dim]; f32 when `accumulate` or `f32_out`
  bool accumulate = false;
  bool f32_out = false;  // states that are pooled
  Region f32_copy;       // optional f32 [rows, dim]: the same before it is rounded; not with `accumulate`
  // What a row of `out` has beside these values: it is so wide, and they begin at this column. 0: it has nothing else.
  int64_t out_width = 0, out_column = 0;

  int64_t stride() const { return out_width > 0 ? out_width : dim; }

  bool check(Inventory& has) const {
    has.vector(weight, dim);
    has.vector(bias, dim);
    has.words(in, rows * dim);
    if (f32_copy.bytes > 0) has.words(f32_copy, rows * dim);
    has.elements(out, rows * stride(), accumulate || f32_out);
    return rows > 0;
  }
};

// out = act(in W^T + bias), or out += ... into the residual stream; gated: out = act(in W^T + bias) * (in U^T +
// up_bias)
struct LinearOp {
  int64_t rows = 0;
  Region in;                                 // activation [rows, cols of W]; f32 when `f32_in`
  WeightId weight;                           // [N, cols]
  WeightId bias;                             // optional [N]
  WeightId up, up_bias;                      // gated: U and its optional bias, as W and its
  Region out;                                // activation [rows, N]; f32 when `accumulate` or `f32_out`
  bool accumulate = false;                   // out += result: the residual add; neither gated nor with an activation
  bool f32_out = false;                      // logits; not gated
  bool f32_in = false;                       // `in` is not rounded on its way, but where the weights are in blocks
  std::optional<ActivationKind> activation;  // of the result, bias included; a gated product has one
  const char* role = "linear";               // which product of the model it is, for profiles

  bool check(Inventory& has) const {
    if (rows == 0) return false;
    const WeightSize& size = has.matrix(weight);
    has.vector(bias, size.rows);
    has.vector(up_bias, size.rows);
    has.elements(in, rows * size.cols, f32_in);
    has.elements(out, rows * size.rows, accumulate || f32_out);
    has.times.weight_bytes += size.bytes + (up ? has.matrix(up, size.cols, size.rows).bytes : 0);
    return true;
  }
};

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1.0f;     // applied to q . k
  int64_t window = 0;     // > 0: a row at position p sees positions (p - window, p]
  int64_t rope_dims = 0;  // leading dims of a head that rotate; the pair of i is i + rope_dims / 2
  // Where ranks share the heads: how many query heads a KV head has on all of them, and how many of the first one's
  // lie before the first head here. 0: heads / kv_heads, and none.
  int64_t whole_group = 0, skipped = 0;

  int64_t group() const { return whole_group > 0 ? whole_group : heads / kv_heads; }
  // The query heads of a KV head: the first, and the one behind the last.
  int64_t first_query(int64_t kv_head) const { return std::max<int64_t>(kv_head * group() - skipped, 0); }
  int64_t last_query(int64_t kv_head) const { return std::min((kv_head + 1) * group() - skipped, heads); }

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_size; }
  int64_t out_width() const { return heads * head_size; }
};

// One layer's attention: decode rows in one fused operation, those of prefill in two.
struct AttentionOp {
  enum class Part : uint8_t {
    decode,         // rows [0, D): rotate q and k, write k and v to the cache, attend
    prefill_write,  // rows [D, T): rotate q, in place, and k; write k and v
    prefill         // rows [D, T): attend, causally, to everything the row's sequence has in the cache
  };
  Part part = Part::decode;
  int64_t layer = 0;
  AttentionShape shape;
  Region qkv;               // activation [T, heads + 2 kv_heads, head_size]: q heads, then k, then v
  Region rope;              // from RopeTableOp
  WeightId q_norm, k_norm;  // optional [head_size]: RMS norm of each head before rotation
  float norm_eps = 1e-6f;
  Region out;  // activation [T, heads * head_size]

  bool check(Inventory& has) const {
    const StagedStep& step = has.step;
    const bool decodes = part == Part::decode;
    if ((decodes ? step.decode_rows : step.tokens - step.decode_rows) == 0) return false;
    has.attention(layer, shape.kv_heads, shape.head_size);
    has.activations(qkv, step.tokens * shape.qkv_width());
    if (part != Part::prefill) {
      has.vector(q_norm, shape.head_size);
      has.vector(k_norm, shape.head_size);
      if (shape.rope_dims > 0) has.words(rope, step.tokens * shape.rope_dims);
    }
    if (part != Part::prefill_write) {
      has.activations(out, step.tokens * shape.out_width());
      has.read_cache(shape.window, decodes ? 0 : step.decode_rows, decodes ? step.decode_rows : step.seqs);
    }
    return true;
  }
};

// ---- mixtures of experts: route, two products grouped by expert, sum. A *pair* is a row and one of its experts,
// number row * per_token + rank.

// Where a RouteOp leaves its decisions. All are 32-bit words.
struct ExpertRoute {
  int64_t rows = 0, experts = 0, per_token = 0;
  Region ids;      // int32 [rows, per_token]: a row's experts, best first; of equal ones the first
  Region weights;  // f32 [rows, per_token]
  Region order;    // int32 [pairs]: the pairs sorted by expert, then by number
  Region places;   // int32 [pairs]: where each pair is in `order`
  Region starts;   // int32 [experts + 1]: where each expert's pairs start in `order`
  Region items;    // the device's own, 2 * pairs + 1 words
  // Where ranks share the experts: those that this one has. 0: all.
  int64_t first = 0, held = 0;

  int64_t here() const { return held > 0 ? held : experts; }
  int64_t pairs() const { return rows * per_token; }
  int64_t item_words() const { return 2 * pairs() + 1; }

  bool check(const Inventory& has) const {
    for (const Region& region : {ids, weights, order, places}) has.words(region, pairs());
    has.words(starts, experts + 1);
    has.words(items, item_words());
    return rows > 0;
  }
};

// The softmax of each row's logits, its largest `per_token` and the order of the pairs.
struct RouteOp {
  Region logits;  // f32 [rows, experts]
  ExpertRoute route;
  bool normalize = false;  // a row's weights are scaled to sum to 1

  bool check(Inventory& has) const {
    has.words(logits, route.rows * route.experts);
    return route.check(has);
  }
};

// out[i, :] = in[i, :] W^T with W of the expert of pair order[i]; gated: out[i, :] = act(x W^T) * (x U^T), where x is
// the row of that pair. Pairs of experts of other ranks are left as they are. Cost follows the experts that have pairs;
// each is read once for all of them (a device may take 8 to 128 at a time). How many those are is known on the device
// alone: it adds their bytes itself.
struct ExpertLinearOp {
  ExpertRoute route;
  Region in;                                         // activation [pairs, cols]; gated [rows, cols]
  WeightId weight;                                   // [experts here][N, cols]
  WeightId up;                                       // gated: [experts here][N, cols]
  ActivationKind activation = ActivationKind::silu;  // gated
  Region out;                                        // f32 [pairs, N]; gated: activation
  const char* role = "experts";

  bool check(Inventory& has) const {
    if (!route.check(has)) return false;
    const WeightSize& size = has.matrix(weight);
    if (up) has.matrix(up, size.cols, size.rows);
    has.activations(in, (up ? route.rows : route.pairs()) * size.cols);
    has.elements(out, route.pairs() * (size.rows / route.here()), !up);
    return true;
  }
};

// out[r, :] += sum over the row's experts here of their weight times in[place, :]. Experts are in four groups, number
// 4 * expert / experts; a group's are added best first, then the groups, where bits are to be those of several ranks:
// see MatrixSpec::slices.
struct ExpertSumOp {
  ExpertRoute route;
  int64_t dim = 0;
  Region in;   // f32 [pairs, dim]
  Region out;  // f32 [rows, dim], the residual stream
  bool accumulate = true;

  bool check(Inventory& has) const {
    has.words(in, route.pairs() * dim);
    has.words(out, route.rows * dim);
    return route.check(has);
  }
};

// out[r, :] = in[sample_rows[r], :]
struct GatherRowsOp {
  int64_t dim = 0;
  Region in;   // f32 [T, dim]
  Region out;  // f32 [R, dim]

  bool check(Inventory& has) const {
    has.words(in, has.step.tokens * dim);
    has.words(out, has.step.samples * dim);
    return has.step.samples > 0;
  }
};

// Fills the step's outputs from logits f32 [R, vocab], by each row's StagedSampling; appends sampled tokens to the
// sampler slots, and keeps them for the next step's negative token ids.
// A draw is the first token, in the order of ids, at which the running sum of what the filters left exceeds u times all
// of it; u is the first 53 bits of Philox4x32-10 with the seed as key and the position as counter. A row with no token
// left, or with a NaN among its logits, gets token -1. Only `token` and `logprobs` rows choose and append a token.
struct SampleOp {
  Region logits;
  int64_t vocab = 0;

  bool check(Inventory& has) const {
    if (has.step.samples == 0) return false;
    has.samples();
    has.words(logits, has.step.samples * vocab);
    return true;
  }
};

// A sequence that is pooled, as it is staged: rows [first, first + count) of the step, at least one.
struct PooledRows {
  int32_t first, count;
  int32_t before;  // rows of the sequence in earlier steps; 0: it begins here
  int32_t slot;    // its place in PoolOp::kept, which no other sequence of the step has
};

// One vector a sequence, of all its rows so far: its last row, their mean, or its first. A prompt may be cut over
// several steps, and the bits do not depend on where: rows are added one by one in their order, from what `kept` has of
// the steps before, and the mean divides last.
//
// The decoder encodes it behind the final norm of all rows, in f32. A pooled sequence has the same slot in all of its
// steps, and its vector counts once its last row was there. One that was preempted begins again (before = 0). Rows that
// the prefix cache saves are missing here: only `last` may share a prefix.
struct PoolOp {
  enum class Kind : uint8_t { last, mean, first };
  Kind kind = Kind::last;
  bool normalize = false;  // to length 1; what is shorter than 1e-12 is divided by that
  int64_t sequences = 0, slots = 0, dim = 0;
  int32_t pooled = 0;  // PooledRows [sequences], from this word of StagedStep::pool on
  Region in;           // f32 [T, dim]
  Region kept;  // f32 [slots, dim]: the sum so far, or the first row. Shares memory with nothing; `last` needs none
  // The vectors go to OutputLayout::pooled.

  bool check(Inventory& has) const {
    has.words(in, has.step.tokens * dim);
    if (kind != Kind::last) has.words(kept, slots * dim);
    has.vectors(sequences, dim);
    return sequences > 0;
  }
};

// ---- hidden states: what a model gives to a head that guesses its tokens, and what a head reads

// out[t, :] = row t of what was staged for the step's rows: the states given, or the rows of the embedding.
struct TakeStatesOp {
  bool embedded = false;
  int64_t dim = 0;
  Region out;  // f32 [T, dim]

  bool check(Inventory& has) const {
    has.words(out, has.step.tokens * dim);
    return has.step.tokens > 0;
  }
};

// Columns [column, column + dim) of OutputLayout::states = in[state_rows[i], :].
struct GiveStatesOp {
  int64_t dim = 0, column = 0;
  Region in;  // f32 [T, dim]

  bool check(Inventory& has) const {
    has.words(in, has.step.tokens * dim);
    has.states(column + dim);
    return has.step.states > 0;
  }
};

// ---- what the ranks of a group do together; there is none of these where a device is alone

// out = the sum over all ranks of `in` + bias, or out += that; on every rank, as (0 + 1) + (2 + 3).
struct SumRanksOp {
  int64_t rows = 0, dim = 0;
  Region in;      // f32 [rows, dim], used up
  WeightId bias;  // optional [dim], the same on every rank
  Region out;     // f32 [rows, dim]; may be `in`
  bool accumulate = false;

  bool check(Inventory& has) const {
    has.vector(bias, dim);
    has.words(in, rows * dim);
    has.words(out, rows * dim);
    return rows > 0;
  }
};

// out[r, :] = in[r, :] of all ranks, one after the other, on rank 0.
struct GatherRanksOp {
  int64_t rows = 0, dim = 0;  // of `out`; rank r has columns [dim * r / ranks, dim * (r + 1) / ranks)
  int64_t width = 0;          // how many those are here
  Region in;                  // f32 [rows, width]
  Region out;                 // f32 [rows, dim]; empty on other ranks than 0

  bool check(Inventory& has) const {
    has.words(in, rows * width);
    if (out.bytes > 0) has.words(out, rows * dim);
    return rows > 0;
  }
};

// The tokens that rank 0 sampled become those of all, for the next step's negative token ids.
struct ShareTokensOp {
  bool check(Inventory& has) const {
    if (has.step.samples == 0) return false;
    has.samples();
    return true;
  }
};

// Stages of a model: each has some of its layers, and hands the rows of a step to the next. Where ranks share the
// layers of a stage, each deals with the one that has the same share of the next or previous stage.

// The residual stream of a step's rows, to the next stage.
struct SendRowsOp {
  int64_t rows = 0, dim = 0;
  Region in;  // f32 [rows, dim]

  bool check(Inventory& has) const {
    has.words(in, rows * dim);
    return rows > 0;
  }
};

// out = what the previous stage sent.
struct ReceiveRowsOp {
  int64_t rows = 0, dim = 0;
  Region out;  // f32 [rows, dim]

  bool check(Inventory& has) const {
    has.words(out, rows * dim);
    return rows > 0;
  }
};

// What the step has written to its outputs (pack_output()), from the rank that samples to rank 0, which takes it when
// it waits for the step (Group::answer). Always a message, so that no rank is ahead by more steps than there are rings.
struct SendOutputOp {
  bool check(Inventory&) const { return true; }
};

using Op = std::variant<PrepareOp, EmbedOp, ReadRowsOp, RopeTableOp, NormOp, LinearOp, AttentionOp, RouteOp,
                        ExpertLinearOp, ExpertSumOp, GatherRowsOp, SampleOp, PoolOp, TakeStatesOp, GiveStatesOp,
                        SumRanksOp, GatherRanksOp, ShareTokensOp, SendRowsOp, ReceiveRowsOp, SendOutputOp>;

}  // namespace ingot
