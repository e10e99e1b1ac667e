#include "backend/inventory.h"

#include <algorithm>

#include "core/error.h"
#include "step/view.h"

namespace ingot {

const WeightSize& Inventory::weight(WeightId id) const {
  if (id.index < 0 || static_cast<size_t>(id.index) >= weights.size())
    throw_error(ErrorKind::internal, "{}: no weight {}", who, id.index);
  return weights[static_cast<size_t>(id.index)];
}

const WeightSize& Inventory::matrix(WeightId id, int64_t cols, int64_t rows) const {
  const WeightSize& size = weight(id);
  if (size.rows == 0) throw_error(ErrorKind::internal, "{}: weight {} is a vector, not a matrix", who, id.index);
  if ((cols > 0 && size.cols != cols) || (rows > 0 && size.rows != rows))
    throw_error(ErrorKind::internal, "{}: weight {} has {} rows of {}, not {} of {}", who, id.index, size.rows,
                size.cols, rows > 0 ? rows : size.rows, cols > 0 ? cols : size.cols);
  return size;
}

int64_t Inventory::vector(WeightId id) const {
  const WeightSize& size = weight(id);
  if (size.rows > 0) throw_error(ErrorKind::internal, "{}: weight {} is a matrix, not a vector", who, id.index);
  return size.cols;
}

void Inventory::vector(WeightId id, int64_t size) const {
  if (id && vector(id) != size)
    throw_error(ErrorKind::internal, "{}: weight {} has {} values, not {}", who, id.index, vector(id), size);
}

void Inventory::bytes(Region region, size_t bytes) const {
  if (bytes > region.bytes || region.offset > scratch_bytes || bytes > scratch_bytes - region.offset)
    throw_error(ErrorKind::internal, "{}: {} bytes at scratch offset {} do not fit (region {}, scratch {})", who, bytes,
                region.offset, region.bytes, scratch_bytes);
}

void Inventory::blocks() const {
  if (!kv) throw_error(ErrorKind::internal, "{}: block copies without a KV cache", who);
  if (step.saves + step.loads > 0 && host_blocks == 0)
    throw_error(ErrorKind::internal, "{}: saves and loads without host blocks", who);
}

const KvLayout& Inventory::layer(int64_t layer) const {
  if (!kv || layer < 0 || layer >= kv->layers)
    throw_error(ErrorKind::internal, "{}: no layer {} in the KV cache", who, layer);
  return *kv;
}

void Inventory::attention(int64_t index, int64_t kv_heads, int64_t head_size) const {
  const KvLayout& cache = layer(index);
  if (kv_heads != cache.kv_heads || head_size != cache.head_size)
    throw_error(ErrorKind::internal, "{}: attention of {} KV heads of {} on a cache of {} of {}", who, kv_heads,
                head_size, cache.kv_heads, cache.head_size);
}

void Inventory::samples() const {
  if (!sampler) throw_error(ErrorKind::internal, "{}: sample() without create_sampler()", who);
  if (step.samples > output.max_rows)
    throw_error(ErrorKind::internal, "{}: {} sampled rows, room for {}", who, step.samples, output.max_rows);
}

void Inventory::vectors(int64_t count, int64_t dim) const {
  if (count > 0 && (count > output.max_pooled || dim != output.pooled_dim))
    throw_error(ErrorKind::internal, "{}: {} pooled vectors of {}, room for {} of {}", who, count, dim,
                output.max_pooled, output.pooled_dim);
}

void Inventory::states(int64_t width) const {
  if (step.states > output.max_states || width > output.state_width)
    throw_error(ErrorKind::internal, "{}: states of {} rows of {}, room for {} of {}", who, step.states, width,
                output.max_states, output.state_width);
}

void Inventory::read_cache(int64_t window, int32_t begin, int32_t end) {
  if (stage == nullptr) return;
  const StepView view(step, stage);
  uint64_t tokens = 0;
  for (int32_t s = begin; s < end; ++s) {
    const int64_t length = view.seq_lens()[s], rows = view.query_start()[s + 1] - view.query_start()[s];
    tokens += static_cast<uint64_t>(window > 0 ? std::min(length, window + rows - 1) : length);
  }
  times.kv_bytes += 2 * tokens * static_cast<uint64_t>(kv->kv_heads) * kv->row_bytes();
}

}  // namespace ingot
