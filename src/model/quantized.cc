#include "model/quantized.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/computed_checkpoint.h"
#include "formats/convert_rows.h"

namespace ingot {
namespace {

constexpr int64_t kStepBytes = int64_t{32} << 20;  // of a source read before its pages are dropped

// The format for rows of `cols`, or nothing where blocks do not fit.
std::optional<DType> format_for(DType wanted, int64_t cols) {
  if (cols % dtype_info(wanted).block_size == 0) return wanted;
  if (cols % dtype_info(DType::q5_0).block_size == 0) return DType::q5_0;
  return std::nullopt;
}

void quantize_tensor(const Checkpoint& source, const TensorView& stored, DType type, std::byte* out, ThreadPool& pool) {
  const TensorBytes data(source, stored);
  const int64_t cols = stored.shape.back(), rows = stored.elements() / cols;
  const size_t in_bytes = dtype_bytes(stored.dtype, static_cast<size_t>(cols));
  const size_t out_bytes = dtype_bytes(type, static_cast<size_t>(cols));
  const int64_t step = std::max<int64_t>(1, kStepBytes / static_cast<int64_t>(in_bytes));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    const auto bytes = data.bytes.subspan(static_cast<size_t>(row) * in_bytes, static_cast<size_t>(count) * in_bytes);
    convert_rows(stored.dtype, bytes.data(), type, out + static_cast<size_t>(row) * out_bytes, count, cols, pool);
    source.drop_pages(bytes);
  }
}

}  // namespace

QuantScheme parse_quantize(std::string_view name) {
  if (name == "int8") return {DType::q8_0, DType::q8_0};
  if (name == "int4") return {DType::q4_k, DType::q8_0};
  throw_error(ErrorKind::bad_call, "--quantize {}: must be int8 or int4", name);
}

std::shared_ptr<Checkpoint> quantize_checkpoint(std::shared_ptr<const Checkpoint> source, const ModelConfig& config,
                                                NameStyle style, const QuantScheme& scheme, int threads,
                                                bool required) {
  std::map<std::string, DType> formats;
  for (const WeightNeed& weight : model_layout(config, style).weights) {
    if (weight.exact) continue;
    for (const TensorNeed& need : weight.parts) {
      // A tensor that is missing or has another shape is left for the weight plan to complain of.
      const TensorView* stored = source->find(need.name);
      const auto format = format_for(weight.layer >= 0 ? scheme.layers : scheme.tables, need.shape.back());
      if (stored != nullptr && stored->shape == need.shape && !is_block_quantized(stored->dtype) && format)
        formats[need.name] = *format;
    }
  }
  if (formats.empty() && required)
    throw_error(ErrorKind::bad_call,
                "{}: has no matrix to quantize: all are in blocks already, or no blocks of 32 fit their rows",
                source->describe());
  auto quantized = std::make_shared<ComputedCheckpoint>(source, threads);
  for (const TensorView& stored : source->tensors()) {
    const auto found = formats.find(stored.name);
    if (found == formats.end()) {
      quantized->add(stored);
    } else {
      const DType type = found->second;
      quantized->add({stored.name, type, stored.shape, {}},
                     [&stored, &from = *source, type](std::byte* out, ThreadPool& pool) {
                       quantize_tensor(from, stored, type, out, pool);
                     });
    }
  }
  return quantized;
}

}  // namespace ingot
