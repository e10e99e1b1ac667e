#include "model/share.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/ceil_div.h"
#include "core/error.h"

namespace ingot {
namespace {

constexpr int64_t kFloatUnit = 8;  // columns of plain formats are cut at multiples of this

// Where the slices of `cols` columns end, from 0 on: at multiples of `unit`, and at the end.
std::vector<int64_t> slice_borders(int64_t cols, int64_t unit) {
  const int64_t units = ceil_div(cols, unit);
  std::vector<int64_t> borders;
  for (int i = 0; i < ModelShare::kSlices; ++i) borders.push_back(units * i / ModelShare::kSlices * unit);
  borders.push_back(cols);
  return borders;
}

// The columns that a rank has, and where its slices end among them.
Range rank_columns(const std::vector<int64_t>& borders, const ModelShare& share, std::vector<int64_t>& ends) {
  const auto first = static_cast<size_t>(share.rank * share.slices()), count = static_cast<size_t>(share.slices());
  for (size_t i = 1; i <= count; ++i) ends.push_back(borders[first + i] - borders[first]);
  return {borders[first], borders[first + count]};
}

// The largest block among the tensors that go to this member.
int64_t block_of(WeightId LayerWeights::* slot, const ModelLayout& layout, const Checkpoint& checkpoint) {
  int64_t block = 1;
  for (const WeightNeed& need : layout.weights)
    if (need.layer_slot == slot)
      for (const TensorNeed& part : need.parts)
        block = std::lcm(block, int64_t{dtype_info(checkpoint.get(part.name).dtype).block_size});
  return block;
}

bool has(WeightId LayerWeights::* slot, const ModelLayout& layout) {
  return std::ranges::any_of(layout.weights, [slot](const WeightNeed& need) { return need.layer_slot == slot; });
}

void require(const Range& range, const ModelShare& share, const std::string& what) {
  if (range.size() > 0) return;
  throw_error(ErrorKind::declined,
              "--tp {}: this model cannot be cut for so many ranks, rank {} would get no {}; try --tp {}", share.ranks,
              share.rank, what, share.ranks / 2);
}

void cut_rows(WeightNeed& need, Range rows) { need.parts[0].rows = rows; }

Range times(Range range, int64_t factor) { return {range.begin * factor, range.end * factor}; }
Range behind(Range range, int64_t rows) { return {range.begin + rows, range.end + rows}; }

// q over k over v, in one tensor or in three.
void cut_qkv(WeightNeed& need, const ModelConfig& c, const ModelShare& share) {
  const Range q = times(share.heads, c.head_size), kv = times(share.kv_heads, c.head_size);
  const int64_t q_rows = c.heads * c.head_size, kv_rows = c.kv_heads * c.head_size;
  const bool fused = need.parts.size() == 1;
  if (fused) need.parts.resize(3, need.parts[0]);
  need.parts[0].rows = q;
  need.parts[1].rows = fused ? behind(kv, q_rows) : kv;
  need.parts[2].rows = fused ? behind(kv, q_rows + kv_rows) : kv;
}

// One tensor for all experts, or one each.
void cut_experts(WeightNeed& need, const ModelShare& share) {
  if (need.parts.size() == 1) {
    cut_rows(need, times(share.experts, need.parts[0].shape[1]));
  } else {
    const auto first = need.parts.begin();
    need.parts = std::vector<TensorNeed>(first + share.experts.begin, first + share.experts.end);
  }
  need.groups = share.experts.size();
}

// What gives rows of the residual stream their beginning.
bool begins_rows(const WeightNeed& need) {
  return need.model_slot == &ModelWeights::embedding || need.model_slot == &ModelWeights::positions;
}

bool has_weight(const WeightNeed& need, const ModelConfig& config, const ModelShare& share) {
  const Stage& stage = share.stage;
  if (need.layer >= 0) return need.layer >= stage.layers.begin && need.layer < stage.layers.end;
  if (begins_rows(need) && stage.first()) return !share.embedding_in_file;
  if (need.model_slot == &ModelWeights::embedding) return stage.last() && config.tied_embeddings;
  return need.model_slot != &ModelWeights::positions && stage.last();
}

void cut_stage(ModelLayout& layout, const ModelConfig& config, const ModelShare& share) {
  std::erase_if(layout.weights, [&](const WeightNeed& need) { return !has_weight(need, config, share); });
  for (WeightNeed& need : layout.weights)
    if (need.model_slot == &ModelWeights::embedding && !share.stage.first()) need.model_slot = &ModelWeights::head;
}

}  // namespace

Range even_part(int64_t count, int rank, int ranks) { return {count * rank / ranks, count * (rank + 1) / ranks}; }

bool embedding_stays_in_file(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
  return config.tied_embeddings && std::ranges::none_of(layout.weights, [&](const WeightNeed& need) {
           return begins_rows(need) && checkpoint.get(need.parts[0].name).is_computed();
         });
}

Stage whole_stage(const ModelConfig& config) { return {.layers = {0, config.layers}}; }

ModelShare whole_model(const ModelConfig& c) {
  ModelShare share;
  share.stage = whole_stage(c);
  share.heads.end = c.heads;
  share.kv_heads.end = c.kv_heads;
  share.ffn.end = c.ffn;
  share.experts.end = c.experts;
  share.vocab.end = c.vocab;
  return share;
}

ModelShare share_model(const ModelConfig& c, const ModelLayout& layout, const Checkpoint& checkpoint, int rank,
                       int ranks, const Stage& stage) {
  if (ranks != 1 && ranks != 2 && ranks != 4)
    throw_error(ErrorKind::bad_call, "--tp {}: a model is cut for 1, 2 or 4 ranks", ranks);
  ModelShare share = whole_model(c);
  share.rank = rank;
  share.ranks = ranks;
  share.stage = stage;
  share.embedding_in_file = stage.first() && !stage.last() && embedding_stays_in_file(c, layout, checkpoint);
  const int64_t head_unit =
      std::lcm(std::lcm(c.head_size, block_of(&LayerWeights::output, layout, checkpoint)), int64_t{2});
  const Range columns = rank_columns(slice_borders(c.heads * c.head_size, head_unit), share, share.head_slices);
  share.heads = {columns.begin / c.head_size, columns.end / c.head_size};
  const int64_t group = c.heads / std::max<int64_t>(c.kv_heads, 1);
  if (group > 0) share.kv_heads = {share.heads.begin / group, ceil_div(share.heads.end, group)};
  const int64_t ffn_unit = std::lcm(kFloatUnit, block_of(&LayerWeights::down, layout, checkpoint));
  share.ffn = rank_columns(slice_borders(c.ffn, ffn_unit), share, share.ffn_slices);
  // Expert e is in group 4 e / experts.
  const auto first_expert = [&](int slice) { return ceil_div(slice * c.experts, int64_t{ModelShare::kSlices}); };
  share.experts = {first_expert(rank * share.slices()), first_expert((rank + 1) * share.slices())};
  share.vocab = even_part(c.vocab, rank, ranks);

  require(share.heads, share, "attention heads");
  require(share.vocab, share, "vocabulary");
  if (has(&LayerWeights::down, layout)) require(share.ffn, share, "part of the MLP");
  if (has(&LayerWeights::expert_down, layout)) require(share.experts, share, "experts");
  return share;
}

void cut_layout(ModelLayout& layout, const ModelConfig& config, const ModelShare& share) {
  cut_stage(layout, config, share);
  for (WeightNeed& need : layout.weights) {
    const auto is = [&need](WeightId LayerWeights::* slot) { return need.layer_slot == slot; };
    if (is(&LayerWeights::output)) need.slices = share.head_slices;
    if (is(&LayerWeights::down)) need.slices = share.ffn_slices;
    if (share.alone()) continue;
    if (need.model_slot == &ModelWeights::embedding || need.model_slot == &ModelWeights::head)
      cut_rows(need, share.vocab);
    if (is(&LayerWeights::qkv) || is(&LayerWeights::qkv_bias)) cut_qkv(need, config, share);
    if (is(&LayerWeights::output)) need.parts[0].cols = times(share.heads, config.head_size);
    if (is(&LayerWeights::gate) || is(&LayerWeights::up) || is(&LayerWeights::gate_bias) || is(&LayerWeights::up_bias))
      cut_rows(need, share.ffn);
    if (is(&LayerWeights::down)) need.parts[0].cols = share.ffn;
    if (is(&LayerWeights::expert_gate) || is(&LayerWeights::expert_up) || is(&LayerWeights::expert_down))
      cut_experts(need, share);
  }
}

}  // namespace ingot
