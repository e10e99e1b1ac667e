#include "model/file_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "formats/block_quant.h"

namespace ingot {
namespace {

class FileTable final : public RowTable {
 public:
  FileTable(std::shared_ptr<const Checkpoint> checkpoint, const ModelConfig& config, NameStyle style)
      : checkpoint_(std::move(checkpoint)) {
    for (const WeightNeed& need : model_layout(config, style).weights) {
      if (need.model_slot == &ModelWeights::embedding) rows_ = &checkpoint_->get(need.parts[0].name);
      if (need.model_slot == &ModelWeights::positions) positions_ = &checkpoint_->get(need.parts[0].name);
    }
  }

  FileTable(std::shared_ptr<const Checkpoint> checkpoint, const TensorView& tensor)
      : checkpoint_(std::move(checkpoint)), rows_(&tensor) {}

  // As EmbedOp: the same numbers, multiplied and added in the same order.
  void read(int64_t token, int64_t position, float scale, float* out) const override {
    const int64_t dim = rows_->shape[1];
    read_row(*rows_, token, out);
    if (scale != 1.0f)
      for (int64_t i = 0; i < dim; ++i) out[i] *= scale;
    if (positions_ == nullptr) return;
    thread_local std::vector<float> more;
    more.resize(static_cast<size_t>(dim));
    read_row(*positions_, position, more.data());
    for (int64_t i = 0; i < dim; ++i) out[i] += more[static_cast<size_t>(i)];
  }

  void drop() const override {
    checkpoint_->drop_pages(rows_->data);
    if (positions_ != nullptr) checkpoint_->drop_pages(positions_->data);
  }

 private:
  static void read_row(const TensorView& table, int64_t row, float* out) {
    const auto columns = static_cast<size_t>(table.shape[1]);
    const auto at = static_cast<size_t>(std::clamp<int64_t>(row, 0, table.shape[0] - 1));
    dequantize(table.dtype, table.data.data() + at * dtype_bytes(table.dtype, columns), columns, out);
  }

  const std::shared_ptr<const Checkpoint> checkpoint_;
  const TensorView* rows_ = nullptr;
  const TensorView* positions_ = nullptr;
};

}  // namespace

std::unique_ptr<RowTable> file_table(std::shared_ptr<const Checkpoint> checkpoint, const ModelConfig& config,
                                     NameStyle style) {
  return std::make_unique<FileTable>(std::move(checkpoint), config, style);
}

std::unique_ptr<RowTable> tensor_table(std::shared_ptr<const Checkpoint> checkpoint, const TensorView& tensor) {
  return std::make_unique<FileTable>(std::move(checkpoint), tensor);
}

}  // namespace ingot
