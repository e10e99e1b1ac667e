#include "backend/cpu/kv_cache.h"

#include <cstring>

#include "core/error.h"

namespace ingot::cpu {
namespace {

template <typename T>
void transpose_heads(const T* in, T* out, int64_t heads, int64_t rows, int64_t cols) {
  for (int64_t h = 0; h < heads; ++h, in += rows * cols, out += rows * cols)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) out[c * rows + r] = in[r * cols + c];
}

void transpose_bytes(const std::byte* in, std::byte* out, int64_t heads, int64_t rows, int64_t cols, size_t element) {
  if (element == 4)
    transpose_heads(reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint32_t*>(out), heads, rows, cols);
  else
    transpose_heads(reinterpret_cast<const uint16_t*>(in), reinterpret_cast<uint16_t*>(out), heads, rows, cols);
}

void check_size(size_t got, size_t want) {
  if (got != want)
    throw_error(ErrorKind::bad_call, "cpu: one layer of the KV cache has {} bytes for K and for V, not {}", want, got);
}

}  // namespace

KvCache::KvCache(const KvLayout& layout) : layout_(layout) {
  switch (layout.dtype) {
    case DType::f32: type_ = KvType::f32; break;
    case DType::f16: type_ = KvType::f16; break;
    case DType::bf16: type_ = KvType::bf16; break;
    default:
      throw_error(ErrorKind::declined, "cpu: a KV cache of {} is not supported; use f16, bf16 or f32",
                  dtype_name(layout.dtype));
  }
  element_ = layout.dtype == DType::f32 ? 4 : 2;
  layer_bytes_ = static_cast<size_t>(layout.num_blocks) * layout.block_bytes();
  // Some slack: a vector may be read past the last key of the last block.
  memory_ = Pages(layout.total_bytes() + 64);
}

void KvCache::read(int64_t layer_index, bool value, std::span<std::byte> out) const {
  check_size(out.size(), layer_bytes_);
  const std::byte* from = layer(layer_index, value);
  if (value)
    std::memcpy(out.data(), from, layer_bytes_);
  else
    transpose_bytes(from, out.data(), layout_.num_blocks * layout_.kv_heads, layout_.head_size, layout_.block_size,
                    element_);
}

void KvCache::write(int64_t layer_index, bool value, std::span<const std::byte> in) {
  check_size(in.size(), layer_bytes_);
  std::byte* to = layer(layer_index, value);
  if (value)
    std::memcpy(to, in.data(), layer_bytes_);
  else
    transpose_bytes(in.data(), to, layout_.num_blocks * layout_.kv_heads, layout_.block_size, layout_.head_size,
                    element_);
}

void KvCache::zero_block(int64_t layer_index, int64_t block) {
  const size_t bytes = layout_.block_bytes();
  for (bool value : {false, true})
    std::memset(layer(layer_index, value) + static_cast<size_t>(block) * bytes, 0, bytes);
}

void KvCache::copy_block(int64_t layer_index, int64_t from, int64_t to) {
  const size_t bytes = layout_.block_bytes();
  for (bool value : {false, true}) {
    std::byte* base = layer(layer_index, value);
    std::memmove(base + static_cast<size_t>(to) * bytes, base + static_cast<size_t>(from) * bytes, bytes);
  }
}

}  // namespace ingot::cpu
