#include "model/quantized.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/convert_rows.h"
#include "formats/made_checkpoint.h"

namespace ingot {
namespace {

constexpr int64_t kStepBytes = int64_t{32} << 20;  // of a source read before its pages are dropped

// The format for rows of `cols`, or nothing where blocks do not fit.
std::optional<DType> format_for(DType wanted, int64_t cols) {
  if (cols % dtype_info(wanted).block_size == 0) return wanted;
  if (cols % dtype_info(DType::q5_0).block_size == 0) return DType::q5_0;
  return std::nullopt;
}

class QuantizedCheckpoint : public MadeCheckpoint {
 public:
  QuantizedCheckpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config, NameStyle style,
                      const QuantScheme& scheme, int threads, bool required)
      : MadeCheckpoint(std::move(source), threads) {
    tensors_ = source_->tensors();
    index_tensors();
    for (const WeightNeed& weight : model_layout(config, style).weights) {
      if (weight.vector || weight.layer_slot == &LayerWeights::router || weight.model_slot == &ModelWeights::positions)
        continue;
      const DType wanted = weight.layer_slot != nullptr ? scheme.layers : scheme.tables;
      for (const TensorNeed& need : weight.parts) plan(need, wanted);
    }
    if (making_.empty() && required)
      throw_error(ErrorKind::bad_call,
                  "{}: has no matrix to quantize: all are in blocks already, or no blocks of 32 fit their rows",
                  source_->describe());
  }

 protected:
  bool makes(std::string_view name) const override { return making_.find(name) != making_.end(); }

  void fill(const TensorView& target, std::byte* out, ThreadPool& pool) const override {
    const Making& making = making_.find(target.name)->second;
    const TensorView& stored = *making.stored;
    const int64_t cols = target.shape.back(), rows = target.elements() / cols;
    if (making.transposed) {
      const std::vector<std::byte> turned = transpose(stored);
      convert_rows(stored.dtype, turned.data(), target.dtype, out, rows, cols, pool);
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
                   pool);
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

  std::map<std::string, Making, std::less<>> making_;
};

}  // namespace

QuantScheme parse_quantize(std::string_view name) {
  if (name == "int8") return {DType::q8_0, DType::q8_0};
  if (name == "int4") return {DType::q4_k, DType::q8_0};
  throw_error(ErrorKind::bad_call, "--quantize {}: must be int8 or int4", name);
}

std::shared_ptr<Checkpoint> quantize_checkpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config,
                                                NameStyle style, const QuantScheme& scheme, int threads,
                                                bool required) {
  return std::make_shared<QuantizedCheckpoint>(std::move(source), config, style, scheme, threads, required);
}

}  // namespace ingot
