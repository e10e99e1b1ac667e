#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/kv_type.h"
#include "formats/tensor.h"
#include "model/config.h"
#include "step/output.h"
#include "step/staged.h"

// What a device must do: about twenty fused LLM operations, each *encoded* during a step and run after submit(). It is
// not a tensor library: there is no general graph, no shape inference, no allocation inside a step.
//
// Words used everywhere: a *row* is one token of the step; a *sequence* owns consecutive rows; a *block* is
// `block_size` cache slots; T rows, S sequences, R sampled rows, D decode rows (they come first, one a decode
// sequence).
namespace ingot {

// A piece of the device's scratch memory (activations), planned once at load. The host never has a pointer to it.
struct Region {
  size_t offset = 0;  // bytes from the start of scratch, 64-byte aligned
  size_t bytes = 0;
};

// A weight on the device. -1: absent (an optional bias, say).
struct WeightId {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
};

// One source tensor of a matrix, and the order in which its rows are taken.
struct MatrixPart {
  const TensorView* tensor = nullptr;  // [rows, cols]
  // GGUF llama files store Q and K with each head's rotary halves interleaved (row 2i and 2i+1 are a pair); we rotate
  // halves (i and i + size/2), so such rows are put back at load. 0: rows as they are.
  int64_t interleaved_head_size = 0;

  int64_t source_row(int64_t row) const {
    if (interleaved_head_size == 0) return row;
    const int64_t half = interleaved_head_size / 2;
    const int64_t in_head = row % interleaved_head_size;
    return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  }
};

// A [rows, cols] matrix for y = x W^T, stacked from one or more tensors along the rows (q over k over v). Parts may
// differ in format.
struct MatrixSpec {
  std::string name;
  std::vector<MatrixPart> parts;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t groups = 1;  // > 1: as many matrices of rows / groups rows, one over the other (a layer's experts)
};

// Throws Error when the tensors do not make up the matrix that the spec says, or not one that devices take.
void check_matrix(const MatrixSpec& spec);

// K and V of all layers: per layer [num_blocks, kv_heads, block_size, head_size], once for K and once for V. With int8
// the numbers of each block and KV head are followed by their scales, f32 [block_size].
struct KvLayout {
  int64_t layers = 0;
  int64_t num_blocks = 0;
  int64_t kv_heads = 0;
  int64_t block_size = 16;
  int64_t head_size = 0;
  KvType dtype = KvType::f16;

  size_t row_bytes() const {  // one position of one KV head, K or V alone, its scale included
    return static_cast<size_t>(head_size) * kv_element_bytes(dtype) + kv_scale_bytes(dtype);
  }
  size_t head_bytes() const { return static_cast<size_t>(block_size) * row_bytes(); }  // of a block, likewise
  size_t block_bytes() const { return static_cast<size_t>(kv_heads) * head_bytes(); }  // of a layer, likewise
  size_t total_bytes() const { return 2 * static_cast<size_t>(layers * num_blocks) * block_bytes(); }
};

struct DeviceInfo {
  std::string name;               // "cpu", "metal", "cuda"
  std::string description;        // "AVX-512 (VNNI, BF16), 2 threads"
  DType activation = DType::f32;  // of every activation except the residual stream and the logits, which are f32
  uint64_t memory_bytes = 0;      // what the device could give a model, 0 when unknown
  int32_t step_tokens = 2048;     // most rows in a step when nobody asks for more or less
};

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1.0f;     // applied to q . k
  int64_t window = 0;     // > 0: a row at position p sees positions (p - window, p]
  int64_t rope_dims = 0;  // leading dims of a head that rotate; the pair of i is i + rope_dims / 2
};

// ---- operations -----------------------------------------------------------------------------------------------------

// residual[t, :] = table[token_ids[t], :] * scale (+ position_table[positions[t], :])
struct EmbedOp {
  WeightId table;           // [vocab, hidden]
  WeightId position_table;  // optional [max_position, hidden]
  float scale = 1.0f;
  Region out;  // f32 [T, hidden]
};

// cos and sin of every rotating pair, once a step: out[t, i] = (cos, sin)(positions[t] * inv_freq[i]) * factor
struct RopeTableOp {
  WeightId inv_freq;  // f32 [rope_dims / 2]
  float factor = 1.0f;
  Region out;  // f32 [T, rope_dims / 2, 2]
};

// out = norm(in) * weight (+ bias), or out += ... into the residual stream
struct NormOp {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
  int64_t rows = 0, dim = 0;
  Region in;        // f32 [rows, dim], the residual stream
  WeightId weight;  // [dim]
  WeightId bias;    // optional
  Region out;       // activation [rows, dim]; f32 when `accumulate`
  bool accumulate = false;
};

// out = in W^T (+ bias), or out += ... into the residual stream
struct LinearOp {
  int64_t rows = 0;
  Region in;                                 // activation [rows, cols of W]
  WeightId weight;                           // [N, cols]
  WeightId bias;                             // optional [N]
  Region out;                                // activation [rows, N]; f32 when `accumulate` or `f32_out`
  bool accumulate = false;                   // out += result: the residual add
  bool f32_out = false;                      // logits
  std::optional<ActivationKind> activation;  // of the result, bias included; not with `accumulate`
  // The first rows, whose bits must not depend on how many rows there are: the step's decode rows, or all of those that
  // produce output. A device that sums the same way for any number of rows does not look at it. -1: not known.
  int64_t decode_rows = -1;
};

// out = act(in G^T + gate_bias) * (in U^T + up_bias)
struct GatedLinearOp {
  int64_t rows = 0;
  ActivationKind activation = ActivationKind::silu;
  Region in;          // activation [rows, hidden]
  WeightId gate, up;  // [ffn, hidden]
  WeightId gate_bias, up_bias;
  Region out;                // activation [rows, ffn]
  int64_t decode_rows = -1;  // as for LinearOp
};

// The rows of qkv are [heads + 2 * kv_heads, head_size]: q heads, then k, then v.
// Decode, one fused operation: rotate q and k, write k and v to the cache, attend. Rows [0, D).
struct DecodeAttentionOp {
  int64_t layer = 0;
  AttentionShape shape;
  Region qkv;               // activation [T, (heads + 2 kv_heads) * head_size]
  Region rope;              // from RopeTableOp
  WeightId q_norm, k_norm;  // optional [head_size]: RMS norm of each head before rotation
  float norm_eps = 1e-6f;
  Region out;  // activation [T, heads * head_size]
};
// Prefill writes first (rotates q in place; rows [D, T)) ...
struct PrefillWriteOp {
  int64_t layer = 0;
  AttentionShape shape;
  Region qkv;
  Region rope;
  WeightId q_norm, k_norm;
  float norm_eps = 1e-6f;
};
// ... then attends, causally, to everything its sequence has in the cache.
struct PrefillAttentionOp {
  int64_t layer = 0;
  AttentionShape shape;
  Region qkv;
  Region out;  // activation [T, heads * head_size]
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

  int64_t pairs() const { return rows * per_token; }
};

// The softmax of each row's logits, its largest `per_token` and the order of the pairs.
struct RouteOp {
  Region logits;  // f32 [rows, experts]
  ExpertRoute route;
  bool normalize = false;  // a row's weights are scaled to sum to 1
};

// out[i, :] = act(x G^T) * (x U^T) with G and U of the expert, and x the row, of pair order[i]. Cost follows the
// experts that have pairs; each is read once for all of them (a device may take 16 at a time).
struct ExpertGatedLinearOp {
  ExpertRoute route;
  ActivationKind activation = ActivationKind::silu;
  Region in;          // activation [rows, hidden]
  WeightId gate, up;  // [experts][ffn, hidden]
  Region out;         // activation [pairs, ffn]
};

// out[i, :] = in[i, :] W^T with W of the expert of pair order[i]
struct ExpertLinearOp {
  ExpertRoute route;
  Region in;        // activation [pairs, ffn]
  WeightId weight;  // [experts][hidden, ffn]
  Region out;       // f32 [pairs, hidden]
};

// out[r, :] += sum over ranks, best first, of weights[r, rank] * in[places[r, rank], :]
struct ExpertSumOp {
  ExpertRoute route;
  int64_t dim = 0;
  Region in;   // f32 [pairs, dim]
  Region out;  // f32 [rows, dim], the residual stream
};

// out[r, :] = in[sample_rows[r], :]
struct GatherRowsOp {
  int64_t dim = 0;
  Region in;   // f32 [T, dim]
  Region out;  // f32 [R, dim]
};

// Fills the step's outputs from logits f32 [R, vocab], by each row's StagedSampling; appends sampled tokens to the
// sampler slots, and keeps them for the next step's negative token ids.
// A draw is the first token, in the order of ids, at which the running sum of what the filters left exceeds u times all
// of it; u is the first 53 bits of Philox4x32-10 with the seed as key and the position as counter. A row with no token
// left, or with a NaN among its logits, gets token -1. Only `token` and `logprobs` rows choose and append a token.
struct SampleOp {
  Region logits;
  int64_t vocab = 0;
};

// ---- the device -----------------------------------------------------------------------------------------------------

// The sampler's state: for each slot the tokens of its sequence so far.
struct SamplerLayout {
  int32_t slots = 0;
  int64_t max_tokens = 0;  // history a slot can hold
  int64_t vocab = 0;
};

// Counters of what happened on the device, cumulative; the engine takes differences around a step's phases.
struct DeviceCounters {
  uint64_t submissions = 0;
  uint64_t waits = 0;      // waits and status polls
  uint64_t readbacks = 0;  // host reads of device memory
  uint64_t allocations = 0;
  uint64_t compiles = 0;
  uint64_t dispatches = 0;
};

struct StepTimes {
  double run_us = 0;  // device time of the step
  double gap_us = 0;  // idle since the previous step ended; 0 for the first
  uint64_t weight_bytes = 0, kv_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual DeviceCounters counters() const = 0;

  // A reason this device cannot run the model, for a person; nothing when it can. Looks at the configuration only.
  virtual std::optional<std::string> decline(const ModelConfig& config, const KvLayout& kv) const = 0;

  // -- load: everything is allocated here, once --
  virtual size_t matrix_bytes(const MatrixSpec& spec) const = 0;  // on the device, for the memory plan
  virtual WeightId load_matrix(const MatrixSpec& spec) = 0;
  virtual WeightId load_vector(const std::string& name, std::span<const float> values) = 0;
  virtual void create_scratch(size_t bytes) = 0;
  // What the device uses of its own beside scratch, for `rows` rows and matrices of `cols` columns; for the memory
  // plan.
  virtual size_t work_bytes(int64_t rows, int64_t cols) const = 0;
  virtual void create_kv_cache(const KvLayout& layout) = 0;
  virtual size_t sampler_bytes(const SamplerLayout& layout) const = 0;
  virtual void create_sampler(const SamplerLayout& layout) = 0;
  virtual void create_io(size_t stage_bytes, const OutputLayout& output) = 0;

  // Encodes a step like those to come without running it, so that what it needs (compiled kernels, work memory) is
  // there when it comes. Only the numbers of `step` are looked at, none of its arrays.
  virtual void rehearse(const StagedStep& step, const std::function<void()>& encode) {
    (void)step;
    (void)encode;
  }

  // -- outside a step: explicit copies, for tests and tools. K or V of one layer, whole --
  virtual void write_scratch(Region region, std::span<const std::byte> bytes) = 0;
  virtual void read_scratch(Region region, std::span<std::byte> bytes) = 0;
  virtual void write_cache(int64_t layer, bool value, std::span<const std::byte> bytes) = 0;
  virtual void read_cache(int64_t layer, bool value, std::span<std::byte> bytes) = 0;

  // -- a step: stage, begin, operations in order, submit, wait. Two may be in flight, on alternating rings --
  virtual std::span<std::byte> stage(int ring) = 0;
  virtual void begin(const StagedStep& step) = 0;  // also encodes zeroing, block copies and sampler resets
  virtual void embed(const EmbedOp& op) = 0;
  virtual void rope_table(const RopeTableOp& op) = 0;
  virtual void norm(const NormOp& op) = 0;
  virtual void linear(const LinearOp& op) = 0;
  virtual void gated_linear(const GatedLinearOp& op) = 0;
  virtual void route(const RouteOp& op) = 0;
  virtual void expert_gated_linear(const ExpertGatedLinearOp& op) = 0;
  virtual void expert_linear(const ExpertLinearOp& op) = 0;
  virtual void expert_sum(const ExpertSumOp& op) = 0;
  virtual void decode_attention(const DecodeAttentionOp& op) = 0;
  virtual void prefill_write(const PrefillWriteOp& op) = 0;
  virtual void prefill_attention(const PrefillAttentionOp& op) = 0;
  virtual void gather_rows(const GatherRowsOp& op) = 0;
  virtual void sample(const SampleOp& op) = 0;
  virtual void submit() = 0;
  virtual StepTimes wait(int ring) = 0;  // throws Error(device) when the step failed
  virtual std::span<const std::byte> output(int ring) = 0;
};

}  // namespace ingot
