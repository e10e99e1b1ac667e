#include "model/quantized.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "formats/convert_rows.h"

namespace ingot {
namespace {

constexpr int64_t kStepBytes = int64_t{32} << 20;  // of a source read before its pages are dropped

// The format for rows of `cols`, or nothing where blocks do not fit.
std::optional<DType> format_for(DType wanted, int64_t cols) {
  if (cols % dtype_info(wanted).block_size == 0) return wanted;
  if (cols % dtype_info(DType::q4_0).block_size == 0) return DType::q4_0;
  return std::nullopt;
}

class QuantizedCheckpoint : public Checkpoint {
 public:
  QuantizedCheckpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config, NameStyle style,
                      const QuantScheme& scheme, int threads)
      : source_(std::move(source)), threads_(threads > 0 ? threads : ThreadPool::available_cpus()) {
    tensors_ = source_->tensors();
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    for (const WeightNeed& weight : model_layout(config, style).weights) {
      if (weight.vector || weight.layer_slot == &LayerWeights::router || weight.model_slot == &ModelWeights::positions)
        continue;
      const DType wanted = weight.layer_slot != nullptr ? scheme.layers : scheme.tables;
      for (const TensorNeed& need : weight.parts) plan(need, wanted);
    }
    if (making_.empty())
      throw_error(ErrorKind::bad_call,
                  "{}: has no matrix to quantize: all are in blocks already, or no blocks of 32 fit their rows",
                  source_->describe());
  }

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? source_->find(name) : &tensors_[found->second];
  }
  uint64_t file_bytes() const override { return source_->file_bytes(); }
  void drop_pages(std::span<const std::byte> bytes) const override { source_->drop_pages(bytes); }
  std::string describe() const override { return source_->describe(); }

  void make(const TensorView& tensor, std::byte* out) const override {
    const auto found = making_.find(tensor.name);
    if (found == making_.end()) return source_->make(tensor, out);
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(threads_);
    const TensorView& stored = *found->second.stored;
    const TensorView& target = tensors_[index_.find(tensor.name)->second];
    const int64_t cols = target.shape.back(), rows = target.elements() / cols;
    if (found->second.transposed) {
      const std::vector<std::byte> turned = transpose(stored);
      convert_rows(stored.dtype, turned.data(), target.dtype, out, rows, cols, *pool_);
      source_->drop_pages(stored.data);
      return;
    }
    const size_t in_bytes = dtype_bytes(stored.dtype, static_cast<size_t>(cols));
    const size_t out_bytes = dtype_bytes(target.dtype, static_cast<size_t>(cols));
    const int64_t step = std::max<int64_t>(1, kStepBytes / static_cast<int64_t>(in_bytes));
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      const auto bytes =
          stored.data.subspan(static_cast<size_t>(row) * in_bytes, static_cast<size_t>(count) * in_bytes);
      convert_rows(stored.dtype, bytes.data(), target.dtype, out + static_cast<size_t>(row) * out_bytes, count, cols,
                   *pool_);
      source_->drop_pages(bytes);
    }
  }

 private:
  struct Making {
    const TensorView* stored;
    bool transposed;  // stored [cols, rows]; offered the other way round
  };

  // A tensor that is missing or has another shape is left for the weight plan to complain of.
  void plan(const TensorNeed& need, DType wanted) {
    const auto found = index_.find(stored_name(*source_, need.name));
    if (found == index_.end()) return;
    TensorView& tensor = tensors_[found->second];
    if (tensor.shape != need.shape || is_block_quantized(tensor.dtype) || tensor.is_made()) return;
    if (need.transposed) std::reverse(tensor.shape.begin(), tensor.shape.end());
    const std::optional<DType> format = format_for(wanted, tensor.shape.back());
    if (!format) {
      tensor.shape = need.shape;
      return;
    }
    making_[tensor.name] = {source_->find(tensor.name), need.transposed};
    tensor.dtype = *format;
    tensor.data = made_bytes(dtype_bytes(*format, static_cast<size_t>(tensor.elements())));
  }

  std::shared_ptr<const Checkpoint> source_;
  int threads_;
  mutable std::unique_ptr<ThreadPool> pool_;  // started by the first tensor made
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, Making, std::less<>> making_;
};

}  // namespace

QuantScheme parse_quantize(std::string_view name) {
  if (name == "int8") return {DType::q8_0, DType::q8_0};
  if (name == "int4") return {DType::q4_k, DType::q8_0};
  throw_error(ErrorKind::bad_call, "--quantize {}: must be int8 or int4", name);
}

std::shared_ptr<Checkpoint> quantize_checkpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config,
                                                NameStyle style, const QuantScheme& scheme, int threads) {
  return std::make_shared<QuantizedCheckpoint>(std::move(source), config, style, scheme, threads);
}

}  // namespace ingot
