#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "kv_bytes.h"

namespace ingot::test {

// Every operation of a device written as plainly as possible, in double precision: what the devices are compared with.
// Activations are stored as floats between operations; K and V are rounded to the cache's type. Operations run inside
// submit(), one after another.
class ReferenceBackend : public Backend {
 public:
  ReferenceBackend() { info_.name = "reference"; }

  const DeviceInfo& info() const override { return info_; }
  DeviceCounters counters() const override { return {}; }
  std::optional<std::string> decline(const ModelConfig&, const KvLayout&) const override { return std::nullopt; }

  size_t matrix_bytes(const MatrixSpec& spec) const override { return static_cast<size_t>(spec.rows * spec.cols) * 8; }
  WeightId load_matrix(const MatrixSpec& spec) override;
  WeightId load_vector(const std::string& name, std::span<const float> values) override;
  void create_scratch(size_t bytes) override { scratch_.assign(bytes / 4, 0.0f); }
  size_t work_bytes(int64_t, int64_t) const override { return 0; }
  void create_kv_cache(const KvLayout& layout) override;
  size_t sampler_bytes(const SamplerLayout&) const override { return 0; }
  void create_sampler(const SamplerLayout& layout) override;
  void create_io(size_t stage_bytes, const OutputLayout& output) override;

  void write_scratch(Region region, std::span<const std::byte> bytes) override;
  void read_scratch(Region region, std::span<std::byte> bytes) override;
  void write_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override;
  void read_cache(int64_t layer, bool value, std::span<std::byte> bytes) override;

  std::span<std::byte> stage(int ring) override { return stage_[ring]; }
  void begin(const StagedStep& step) override;
  void embed(const EmbedOp& op) override;
  void rope_table(const RopeTableOp& op) override;
  void norm(const NormOp& op) override;
  void linear(const LinearOp& op) override;
  void gated_linear(const GatedLinearOp& op) override;
  void route(const RouteOp& op) override;
  void expert_gated_linear(const ExpertGatedLinearOp& op) override;
  void expert_linear(const ExpertLinearOp& op) override;
  void expert_sum(const ExpertSumOp& op) override;
  void decode_attention(const DecodeAttentionOp& op) override;
  void prefill_write(const PrefillWriteOp& op) override;
  void prefill_attention(const PrefillAttentionOp& op) override;
  void gather_rows(const GatherRowsOp& op) override;
  void sample(const SampleOp& op) override;
  void submit() override;
  StepTimes wait(int) override { return {}; }
  std::span<const std::byte> output(int ring) override { return output_[ring]; }

 private:
  struct Matrix {
    int64_t rows = 0, cols = 0;
    std::vector<double> values;
  };
  struct Slot {
    std::vector<int32_t> prompt, output;
  };

  void record(std::function<void()> operation) { operations_.push_back(std::move(operation)); }
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
  int32_t* words(Region region) { return reinterpret_cast<int32_t*>(at(region)); }
  void sample_row(const float* logits, int64_t vocab, int64_t row);

  template <typename T>
  const T* staged(size_t offset) const {
    return reinterpret_cast<const T*>(stage_[step_.ring].data() + offset);
  }

  DeviceInfo info_;
  std::vector<Matrix> weights_;
  std::vector<float> scratch_;
  KvLayout kv_;
  std::vector<KvNumbers> cache_;  // [layers][2]
  std::vector<Slot> slots_;
  OutputLayout output_layout_;
  std::vector<std::byte> stage_[2], output_[2];
  StagedStep step_;
  std::vector<std::function<void()>> operations_;
  std::vector<int32_t> sampled_;  // by the previous step
};

}  // namespace ingot::test
