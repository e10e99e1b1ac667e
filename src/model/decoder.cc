#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/rope.h"

namespace ingot {

DecoderScratch DecoderScratch::of(const ModelConfig& c, const ModelShare& share, int64_t max_tokens,
                                  int64_t max_sample_rows, DType activation, int64_t pool_slots, bool final_states) {
  DecoderScratch s;
  const auto place = [&s](int64_t rows, int64_t width, DType type) {
    const size_t bytes = dtype_bytes(type, static_cast<size_t>(rows * width));
    const Region region{s.bytes, bytes};
    s.bytes += (bytes + 63) / 64 * 64;
    return region;
  };
  const int64_t q = share.heads.size() * c.head_size;
  const int64_t qkv = q + 2 * share.kv_heads.size() * c.head_size;
  s.residual = place(max_tokens, c.hidden, DType::f32);
  if (share.stage.last()) s.sampled = place(max_sample_rows, c.hidden, DType::f32);
  s.rope = place(max_tokens, c.rope_dims, DType::f32);
  if (c.local_rope_theta > 0) s.local_rope = place(max_tokens, c.rope_dims, DType::f32);
  if (c.head) {
    s.given = place(max_tokens, c.head.reads, DType::f32);
    s.embedded = place(max_tokens, c.hidden, DType::f32);
  }
  s.normed = s.attended = place(max_tokens, std::max(c.head ? 2 * c.hidden : c.hidden, q), activation);
  s.qkv = s.mlp = place(max_tokens, std::max({qkv, share.ffn.size(), c.experts_per_token * c.expert_ffn}), activation);
  if (c.experts > 0) {
    const int64_t pairs = max_tokens * c.experts_per_token;
    s.projected = place(pairs, c.hidden, DType::f32);
    if (!share.alone()) s.rank_sum = place(max_tokens, c.hidden, DType::f32);
    s.router = place(max_tokens, c.experts, DType::f32);
    s.router_in = activation == DType::f32 ? s.normed : place(max_tokens, c.hidden, DType::f32);
    s.route.experts = c.experts;
    s.route.per_token = c.experts_per_token;
    s.route.first = share.experts.begin;
    s.route.held = share.experts.size();
    for (Region* region : {&s.route.ids, &s.route.weights, &s.route.order, &s.route.places})
      *region = place(pairs, 1, DType::f32);
    s.route.starts = place(c.experts + 1, 1, DType::f32);
    s.route.items = place(2 * pairs + 1, 1, DType::f32);
  } else if (c.sandwich_norms || !share.alone()) {
    s.projected = place(max_tokens, c.hidden, DType::f32);
  }
  if (share.stage.last()) s.logits = place(max_sample_rows, share.vocab.size(), DType::f32);
  if (!share.alone() && share.samples()) s.all_logits = place(max_sample_rows, c.vocab, DType::f32);
  s.pool_slots = pool_slots;
  if ((pool_slots > 0 || final_states) && share.stage.last()) s.states = place(max_tokens, c.hidden, DType::f32);
  if (pool_slots > 0 && share.stage.last()) {
    s.kept = place(pool_slots, c.hidden, DType::f32);
  }
  // A layer: two norms and two sums of the residual stream, rotations; then the inputs of qkv, attention, the output
  // projection and the MLP. Beside the layers the last norm, the head and the sampler.
  const int64_t f32_loads = c.layers * (4 * c.hidden + c.rope_dims) + c.hidden + c.vocab;
  const int64_t activation_loads = c.layers * (c.hidden + qkv + q + c.hidden + share.ffn.size()) + c.hidden;
  s.least_loads = dtype_bytes(DType::f32, static_cast<size_t>(max_tokens * f32_loads)) +
                  dtype_bytes(activation, static_cast<size_t>(max_tokens * activation_loads));
  return s;
}

ModelShape model_shape(const ModelConfig& config, int ranks) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .rope_dims = config.rope_dims,
          .experts = config.experts,
          .experts_per_token = config.experts_per_token,
          .ranks = ranks};
}

Decoder::Decoder(const ModelConfig& config, const ModelShare& share, ModelWeights weights,
                 const DecoderScratch& scratch, Pooling pooling, std::shared_ptr<const RowTable> embedding,
                 std::vector<int> state_layers)
    : config_(config),
      share_(share),
      weights_(std::move(weights)),
      scratch_(scratch),
      pooling_(pooling),
      embedding_(std::move(embedding)),
      state_layers_(std::move(state_layers)),
      gives_final_(config.head.kind == ModelConfig::Head::Kind::mtp ||
                   std::ranges::find(state_layers_, config.layers) != state_layers_.end()),
      rope_factor_(rope_attention_factor(config)),
      stream_(config.head.norm_before_residual ? scratch.embedded : scratch.residual) {
  // The stream is kept divided by residual_scale: what the layers add then needs no factor, and a norm, which has no
  // unit but in its epsilon, gives the same.
  config_.embedding_scale /= config_.residual_scale;
  residual_eps_ = config_.norm_eps / (config_.residual_scale * config_.residual_scale);
  if (config_.attention_scale == 0) config_.attention_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_size));
}

void Decoder::encode(const StagedStep& step, Backend& device) const {
  begin(step, device);
  const Range layers = share_.stage.layers;
  const int64_t last = layers.end - 1;
  const auto give = [&](int64_t layer) {
    for (size_t i = 0; i < state_layers_.size(); ++i)
      if (state_layers_[i] == layer) give_states(static_cast<int64_t>(i) * config_.hidden, stream_, device);
  };
  for (int64_t layer = layers.begin; layer < last; ++layer) {
    give(layer);
    attention(step, layer, device);
    mlp(layer, {step.tokens, stream_}, device);
  }
  give(last);
  attention(step, last, device);
  if (share_.stage.last()) return end(step, device);
  mlp(last, {step.tokens, stream_}, device);
  device.encode(SendRowsOp{.rows = step.tokens, .dim = config_.hidden, .in = scratch_.residual});
}

void Decoder::begin(const StagedStep& step, Backend& device) const {
  if (config_.head.kind == ModelConfig::Head::Kind::mtp)
    read_final_states(step, device);
  else if (config_.head)
    read_states(step, device);
  else if (share_.stage.first())
    embed(step, device);
  else
    device.encode(ReceiveRowsOp{.rows = step.tokens, .dim = config_.hidden, .out = scratch_.residual});
  if (weights_.inv_freq)
    device.encode(RopeTableOp{.inv_freq = weights_.inv_freq, .factor = rope_factor_, .out = scratch_.rope});
  if (weights_.local_inv_freq)
    device.encode(RopeTableOp{.inv_freq = weights_.local_inv_freq, .factor = 1.0f, .out = scratch_.local_rope});
}

// Of the last layer its MLP, then what the step gives.
void Decoder::end(const StagedStep& step, Backend& device) const {
  const int64_t last = config_.layers - 1;
  const bool gives = (config_.head || gives_final_) && step.states > 0;
  const bool all_rows = step.pooled > 0 || gives;  // every row counts to the end
  if (all_rows) {
    const Rows all{step.tokens, stream_};
    mlp(last, all, device);
    if (step.pooled > 0) pool(step, all, device);
    if (gives && gives_final_) final_states(all, device);
    if (gives) give_states(0, gives_final_ ? scratch_.states : stream_, device);
  }
  if (step.samples > 0) {
    // From here on only the rows that produce output matter.
    Rows rows{step.samples, stream_};
    if (step.samples < step.tokens) {
      device.encode(GatherRowsOp{.dim = config_.hidden, .in = stream_, .out = scratch_.sampled});
      rows.residual = scratch_.sampled;
    }
    if (!all_rows) mlp(last, rows, device);
    norm(rows, weights_.final_norm, weights_.final_norm_bias, device);
    device.encode(LinearOp{.rows = step.samples,
                           .in = scratch_.normed,
                           .weight = weights_.head,
                           .out = scratch_.logits,
                           .f32_out = true,
                           .role = "head"});
    sample(step, device);
  }
  if (!share_.stage.first() && share_.samples()) device.encode(SendOutputOp{});
}

// Each rank has a part of the table, and zeros for the tokens of others; or reads all rows from the file.
void Decoder::embed(const StagedStep& step, Backend& device) const {
  if (embedding_ != nullptr) {
    device.encode(ReadRowsOp{.table = embedding_.get(),
                             .scale = config_.embedding_scale,
                             .rows = step.tokens,
                             .dim = config_.hidden,
                             .out = scratch_.residual});
    return;
  }
  device.encode(EmbedOp{.table = weights_.embedding,
                        .position_table = weights_.positions,
                        .scale = config_.embedding_scale,
                        .out = scratch_.residual,
                        .first = share_.alone() ? -1 : share_.vocab.begin});
  if (!share_.alone())
    device.encode(
        SumRanksOp{.rows = step.tokens, .dim = config_.hidden, .in = scratch_.residual, .out = scratch_.residual});
}

// A head's rows: the embedding of their tokens, and states that join the residual stream. Those of the model become as
// wide as its own, which are taken as they are.
void Decoder::read_states(const StagedStep& step, Backend& device) const {
  device.encode(TakeStatesOp{.embedded = true, .dim = config_.hidden, .out = scratch_.embedded});
  if (step.given_width == config_.hidden) {
    device.encode(TakeStatesOp{.dim = config_.hidden, .out = scratch_.residual});
    return;
  }
  device.encode(TakeStatesOp{.dim = config_.head.reads, .out = scratch_.given});
  device.encode(LinearOp{.rows = step.tokens,
                         .in = scratch_.given,
                         .weight = weights_.read_states,
                         .out = scratch_.residual,
                         .f32_out = true,
                         .f32_in = true,
                         .role = "read states"});
}

// `left` and `right`, each normed, side by side.
void Decoder::norm_beside(int64_t rows, Region left, WeightId left_weight, Region right, WeightId right_weight,
                          Backend& device) const {
  NormOp op = {.kind = config_.norm,
               .eps = config_.norm_eps,
               .rows = rows,
               .dim = config_.hidden,
               .in = left,
               .weight = left_weight,
               .out = scratch_.normed,
               .out_width = 2 * config_.hidden};
  device.encode(op);
  op.in = right;
  op.weight = right_weight;
  op.out_column = config_.hidden;
  device.encode(op);
}

// The input of a head's attention: the embedding, then the states, each normed.
void Decoder::norm_both(int64_t rows, const LayerWeights& w, Backend& device) const {
  norm_beside(rows, scratch_.embedded, w.attention_norm, scratch_.residual, w.head_norm, device);
  if (!config_.head.norm_before_residual) return;
  device.encode(NormOp{.kind = config_.norm,
                       .eps = config_.norm_eps,
                       .rows = rows,
                       .dim = config_.hidden,
                       .in = scratch_.residual,
                       .weight = w.head_norm,
                       .out = stream_,
                       .f32_out = true});
}

// The rows of an MTP layer: the model's final states, or its own, beside the embedding of their tokens, each normed.
void Decoder::read_final_states(const StagedStep& step, Backend& device) const {
  device.encode(TakeStatesOp{.embedded = true, .dim = config_.hidden, .out = scratch_.embedded});
  device.encode(TakeStatesOp{.dim = config_.hidden, .out = scratch_.given});
  norm_beside(step.tokens, scratch_.given, weights_.states_norm, scratch_.embedded, weights_.token_norm, device);
  device.encode(LinearOp{.rows = step.tokens,
                         .in = scratch_.normed,
                         .weight = weights_.read_states,
                         .out = scratch_.residual,
                         .f32_out = true,
                         .role = "read states"});
}

// What `state_rows` have now.
void Decoder::give_states(int64_t column, Region states, Backend& device) const {
  device.encode(GiveStatesOp{.dim = config_.hidden, .column = column, .in = states});
}

// The first rank samples for all. Where the first stage is elsewhere no step names tokens of the one before it.
void Decoder::sample(const StagedStep& step, Backend& device) const {
  if (share_.alone()) {
    device.encode(SampleOp{.logits = scratch_.logits, .vocab = config_.vocab});
    return;
  }
  device.encode(GatherRanksOp{.rows = step.samples,
                              .dim = config_.vocab,
                              .width = share_.vocab.size(),
                              .in = scratch_.logits,
                              .out = scratch_.all_logits});
  if (share_.rank == 0) device.encode(SampleOp{.logits = scratch_.all_logits, .vocab = config_.vocab});
  if (share_.stage.first()) device.encode(ShareTokensOp{});
}

void Decoder::attention(const StagedStep& step, int64_t layer, Backend& device) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerConfig kind = config_.layer(layer);
  const int64_t group = config_.heads / config_.kv_heads;
  const AttentionShape shape = {.heads = share_.heads.size(),
                                .kv_heads = share_.kv_heads.size(),
                                .head_size = config_.head_size,
                                .scale = config_.attention_scale,
                                .window = kind.window,
                                .rope_dims = kind.rope == LayerConfig::Rope::none ? 0 : config_.rope_dims,
                                .whole_group = group,
                                .skipped = share_.heads.begin - share_.kv_heads.begin * group};
  const Region rope = kind.rope == LayerConfig::Rope::local ? scratch_.local_rope : scratch_.rope;
  const Rows rows{step.tokens, stream_};

  if (config_.head.kind == ModelConfig::Head::Kind::eagle3)
    norm_both(step.tokens, w, device);
  else
    norm(rows, w.attention_norm, w.attention_norm_bias, device);
  device.encode(LinearOp{.rows = step.tokens,
                         .in = scratch_.normed,
                         .weight = w.qkv,
                         .bias = w.qkv_bias,
                         .out = scratch_.qkv,
                         .role = "qkv"});
  AttentionOp attend = {.layer = layer - share_.stage.layers.begin,
                        .shape = shape,
                        .qkv = scratch_.qkv,
                        .rope = rope,
                        .q_norm = w.q_norm,
                        .k_norm = w.k_norm,
                        .norm_eps = config_.norm_eps,
                        .out = scratch_.attended};
  for (const auto part : {AttentionOp::Part::decode, AttentionOp::Part::prefill_write, AttentionOp::Part::prefill}) {
    attend.part = part;
    device.encode(attend);
  }
  join(rows, scratch_.attended, w.output, w.output_bias, w.attention_post_norm, "attn_out", device);
}

void Decoder::mlp(int64_t layer, const Rows& rows, Backend& device) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const bool routes = config_.layer(layer).experts;
  const bool copies = routes && scratch_.router_in.offset != scratch_.normed.offset;
  norm(rows, w.mlp_norm, w.mlp_norm_bias, device, copies ? scratch_.router_in : Region{});
  if (routes) return experts(w, rows, device);
  const bool gated = config_.gated_mlp;
  device.encode(LinearOp{.rows = rows.count,
                         .in = scratch_.normed,
                         .weight = gated ? w.gate : w.up,
                         .bias = gated ? w.gate_bias : w.up_bias,
                         .up = gated ? w.up : WeightId{},
                         .up_bias = gated ? w.up_bias : WeightId{},
                         .out = scratch_.mlp,
                         .activation = config_.activation,
                         .role = gated ? "mlp gate_up" : "mlp up"});
  join(rows, scratch_.mlp, w.down, w.down_bias, w.mlp_post_norm, "mlp down", device);
}

void Decoder::experts(const LayerWeights& w, const Rows& rows, Backend& device) const {
  ExpertRoute route = scratch_.route;
  route.rows = rows.count;
  device.encode(LinearOp{.rows = rows.count,
                         .in = scratch_.router_in,
                         .weight = w.router,
                         .out = scratch_.router,
                         .f32_out = true,
                         .f32_in = true,
                         .role = "router"});
  device.encode(RouteOp{.logits = scratch_.router, .route = route, .normalize = config_.norm_expert_weights});
  device.encode(ExpertLinearOp{.route = route,
                               .in = scratch_.normed,
                               .weight = w.expert_gate,
                               .up = w.expert_up,
                               .activation = config_.activation,
                               .out = scratch_.mlp,
                               .role = "experts gate_up"});
  device.encode(ExpertLinearOp{
      .route = route, .in = scratch_.mlp, .weight = w.expert_down, .out = scratch_.projected, .role = "experts down"});
  device.encode(ExpertSumOp{.route = route,
                            .dim = config_.hidden,
                            .in = scratch_.projected,
                            .out = share_.alone() ? rows.residual : scratch_.rank_sum,
                            .accumulate = share_.alone()});
  if (!share_.alone())
    device.encode(SumRanksOp{
        .rows = rows.count, .dim = config_.hidden, .in = scratch_.rank_sum, .out = rows.residual, .accumulate = true});
}

void Decoder::norm(const Rows& rows, WeightId weight, WeightId bias, Backend& device, Region f32_copy) const {
  device.encode(NormOp{.kind = config_.norm,
                       .eps = residual_eps_,
                       .rows = rows.count,
                       .dim = config_.hidden,
                       .in = rows.residual,
                       .weight = weight,
                       .bias = bias,
                       .out = scratch_.normed,
                       .f32_copy = f32_copy});
}

void Decoder::final_states(const Rows& rows, Backend& device) const {
  device.encode(NormOp{.kind = config_.norm,
                       .eps = residual_eps_,
                       .rows = rows.count,
                       .dim = config_.hidden,
                       .in = rows.residual,
                       .weight = weights_.final_norm,
                       .bias = weights_.final_norm_bias,
                       .out = scratch_.states,
                       .f32_out = true});
}

void Decoder::pool(const StagedStep& step, const Rows& rows, Backend& device) const {
  final_states(rows, device);
  constexpr PoolOp::Kind kKinds[] = {PoolOp::Kind::last, PoolOp::Kind::last, PoolOp::Kind::mean, PoolOp::Kind::first};
  device.encode(PoolOp{.kind = kKinds[static_cast<size_t>(pooling_.kind)],
                       .normalize = pooling_.normalize,
                       .sequences = step.pooled,
                       .slots = scratch_.pool_slots,
                       .dim = config_.hidden,
                       .pooled = step.pooled_word,
                       .in = scratch_.states,
                       .kept = scratch_.kept});
}

void Decoder::join(const Rows& rows, Region in, WeightId weight, WeightId bias, WeightId post_norm, const char* role,
                   Backend& device) const {
  const Region out = post_norm ? scratch_.projected : rows.residual;
  const bool alone = share_.alone();
  device.encode(LinearOp{.rows = rows.count,
                         .in = in,
                         .weight = weight,
                         .bias = alone ? bias : WeightId{},
                         .out = alone ? out : scratch_.projected,
                         .accumulate = alone && !post_norm,
                         .f32_out = true,
                         .role = role});
  if (!alone)
    device.encode(SumRanksOp{.rows = rows.count,
                             .dim = config_.hidden,
                             .in = scratch_.projected,
                             .bias = bias,
                             .out = out,
                             .accumulate = !post_norm});
  if (!post_norm) return;
  device.encode(NormOp{.kind = config_.norm,
                       .eps = config_.norm_eps,
                       .rows = rows.count,
                       .dim = config_.hidden,
                       .in = scratch_.projected,
                       .weight = post_norm,
                       .out = rows.residual,
                       .accumulate = true});
}

}  // namespace ingot
