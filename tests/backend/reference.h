#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "kv_bytes.h"

namespace ingot::test {

// Every operation of a device written as plainly as possible, in double precision: what the devices are compared with.
// Activations are stored as floats between operations; K and V are rounded to the cache's type. Operations run inside
// submit(), one after another.
class ReferenceBackend : public Backend {
 public:
  ReferenceBackend() : Backend("reference") { describe({.name = "reference"}, {.runs = "the reference runs"}); }

  size_t matrix_bytes(const MatrixSpec& spec) const override { return static_cast<size_t>(spec.rows * spec.cols) * 8; }
  size_t work_bytes(int64_t, int64_t) const override { return 0; }
  size_t sampler_bytes(const SamplerLayout&) const override { return 0; }

 private:
  size_t add_matrix(const MatrixSpec& spec) override;
  size_t add_vector(const std::string& name, std::span<const float> values) override;
  void make_scratch(size_t bytes) override { scratch_.assign(bytes / 4, 0.0f); }
  void make_kv_cache(const KvLayout& layout) override;
  std::vector<std::span<std::byte>> make_host_blocks(int64_t count, size_t bytes) override;
  void make_sampler(const SamplerLayout& layout) override;
  std::vector<std::span<std::byte>> make_io(size_t stage_bytes, const OutputLayout& output, int rings) override;
  void copy_to(Region region, std::span<const std::byte> bytes) override;
  void copy_from(Region region, std::span<std::byte> bytes) override;
  void copy_to_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override;
  void copy_from_cache(int64_t layer, bool value, std::span<std::byte> bytes) override;
  void begin_step(int) override { ops_.clear(); }
  void take(const Op& op) override { ops_.push_back(op); }
  void submit_step(int) override;
  void finish_step(int, StepTimes&) override {}
  std::span<const std::byte> output_of(int ring) override { return output_[ring]; }

  void run(const PrepareOp& op);
  void run(const EmbedOp& op);
  void run(const RopeTableOp& op);
  void run(const NormOp& op);
  void run(const LinearOp& op);
  void run(const AttentionOp& op);
  void run(const RouteOp& op);
  void run(const ExpertLinearOp& op);
  void run(const ExpertSumOp& op);
  void run(const GatherRowsOp& op);
  void run(const TakeStatesOp& op);
  void run(const GiveStatesOp& op);
  void run(const SampleOp& op);
  void run(const PoolOp& op);
  void run(const SumRanksOp&) {}  // it is alone
  void run(const GatherRanksOp&) {}
  void run(const ShareTokensOp&) {}
  void run(const ReadRowsOp&) {}
  void run(const SendRowsOp&) {}
  void run(const ReceiveRowsOp&) {}
  void run(const SendOutputOp&) {}

  struct Matrix {
    int64_t rows = 0, cols = 0;
    std::vector<double> values;
  };
  struct Slot {
    std::vector<int32_t> prompt, output;
  };

  float* at(Region region) { return scratch_.data() + region.offset / 4; }
  const Matrix& weight(WeightId id) const { return weights_[static_cast<size_t>(id.index)]; }
  double bias(WeightId id, int64_t i) const { return id ? weight(id).values[static_cast<size_t>(i)] : 0.0; }
  // A row of the cache: K or V of a layer, KV head, physical slot.
  struct CachedRow {
    std::span<float> elements;  // [head_size]
    float& scale;
  };
  CachedRow cached(int64_t layer, bool value, int64_t kv_head, int64_t slot);
  // Rounds a row to the cache's type.
  void store_row(CachedRow row, std::span<const float> values) const;
  std::vector<double> rotated(const float* head, const AttentionShape& shape, const float* rope, WeightId norm_weight,
                              float eps) const;
  void write_kv(int64_t layer, const AttentionShape& shape, const float* qkv, const float* rope, WeightId k_norm,
                float eps, int64_t row);
  void attend(int64_t layer, const AttentionShape& shape, int64_t seq, int64_t row, int64_t head,
              const std::vector<double>& q, float* out);
  void decode_attention(const AttentionOp& op);
  void prefill_write(const AttentionOp& op);
  void prefill_attention(const AttentionOp& op);
  int32_t* words(Region region) { return reinterpret_cast<int32_t*>(at(region)); }
  void sample_row(const float* logits, int64_t vocab, int64_t row);

  template <typename T>
  const T* staged(size_t offset) const {
    return reinterpret_cast<const T*>(has_.stage + offset);
  }

  std::vector<Matrix> weights_;
  std::vector<float> scratch_;
  std::vector<KvNumbers> cache_;  // [layers][2]
  std::vector<Slot> slots_;
  std::vector<std::vector<float>> host_blocks_;  // each row's elements and scale
  std::vector<std::byte> host_bytes_;            // which nobody compares
  std::vector<std::byte> stage_[2], output_[2];
  std::vector<Op> ops_;
  std::vector<int32_t> sampled_;  // by the previous step
};

}  // namespace ingot::test
