#include "backend/cpu/kv_cache.h"

#include <cstring>

namespace ingot::cpu {
namespace {

// The numbers of each block and head, [rows, cols], turned into [cols, rows]; scales behind them stay as they are.
template <typename T>
void transpose_heads(const KvLayout& layout, const std::byte* in, std::byte* out, int64_t rows, int64_t cols) {
  const size_t numbers = static_cast<size_t>(rows * cols) * sizeof(T);
  for (int64_t h = 0; h < layout.num_blocks * layout.kv_heads; ++h) {
    const T* from = reinterpret_cast<const T*>(in);
    T* to = reinterpret_cast<T*>(out);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
    std::memcpy(out + numbers, in + numbers, layout.head_bytes() - numbers);
    in += layout.head_bytes();
    out += layout.head_bytes();
  }
}

void transpose(const KvLayout& layout, const std::byte* in, std::byte* out, int64_t rows, int64_t cols) {
  switch (kv_element_bytes(layout.dtype)) {
    case 1: return transpose_heads<uint8_t>(layout, in, out, rows, cols);
    case 2: return transpose_heads<uint16_t>(layout, in, out, rows, cols);
    default: return transpose_heads<uint32_t>(layout, in, out, rows, cols);
  }
}

}  // namespace

KvCache::KvCache(const KvLayout& layout) : layout_(layout), layer_bytes_(layout.half_bytes()) {
  // Some slack: a vector may be read past the last key of the last block.
  memory_ = Pages(layout.total_bytes() + 64);
}

void KvCache::read(int64_t layer_index, bool value, std::span<std::byte> out) const {
  const std::byte* from = layer(layer_index, value);
  if (value)
    std::memcpy(out.data(), from, out.size());
  else
    transpose(layout_, from, out.data(), layout_.head_size, layout_.block_size);
}

void KvCache::write(int64_t layer_index, bool value, std::span<const std::byte> in) {
  std::byte* to = layer(layer_index, value);
  if (value)
    std::memcpy(to, in.data(), in.size());
  else
    transpose(layout_, in.data(), to, layout_.block_size, layout_.head_size);
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

void KvCache::save_block(int64_t layer_index, int64_t block, std::byte* host) const {
  const size_t bytes = layout_.block_bytes();
  host += 2 * static_cast<size_t>(layer_index) * bytes;
  for (bool value : {false, true})
    std::memcpy(host + (value ? bytes : 0), layer(layer_index, value) + static_cast<size_t>(block) * bytes, bytes);
}

void KvCache::load_block(int64_t layer_index, const std::byte* host, int64_t block) {
  const size_t bytes = layout_.block_bytes();
  host += 2 * static_cast<size_t>(layer_index) * bytes;
  for (bool value : {false, true})
    std::memcpy(layer(layer_index, value) + static_cast<size_t>(block) * bytes, host + (value ? bytes : 0), bytes);
}

}  // namespace ingot::cpu
