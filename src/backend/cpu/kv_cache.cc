#include "backend/cpu/kv_cache.h"

#include <cstring>

namespace ingot::cpu {
namespace {

constexpr size_t kOddBytes = 17 * 64;

// The numbers of each head of a block, [rows, cols], turned into [cols, rows]; scales behind them stay as they are.
template <typename T>
void transpose_heads(const KvLayout& layout, const std::byte* in, std::byte* out, int64_t rows, int64_t cols) {
  const size_t numbers = static_cast<size_t>(rows * cols) * sizeof(T);
  for (int64_t h = 0; h < layout.kv_heads; ++h) {
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

KvCache::KvCache(const KvLayout& layout)
    : layout_(layout), stride_bytes_(2 * static_cast<size_t>(layout.layers) * layout.block_bytes()) {
  // Were it a power of two, what a layer has of all blocks would meet in the same few places of the processor's caches.
  // A few lines more a block are enough, and less than the memory plan is off by anyway.
  if (stride_bytes_ % (size_t{64} << 10) == 0) stride_bytes_ += kOddBytes;
  // Some slack: a vector may be read past the last key of the last block.
  memory_ = Pages(static_cast<size_t>(layout.num_blocks) * stride_bytes_ + 64, true);
}

void KvCache::read(int64_t layer, bool value, std::span<std::byte> out) const {
  const size_t bytes = layout_.block_bytes();
  for (int64_t b = 0; b < layout_.num_blocks; ++b) {
    std::byte* to = out.data() + static_cast<size_t>(b) * bytes;
    if (value)
      std::memcpy(to, block(layer, value, b), bytes);
    else
      transpose(layout_, block(layer, value, b), to, layout_.head_size, layout_.block_size);
  }
}

void KvCache::write(int64_t layer, bool value, std::span<const std::byte> in) {
  const size_t bytes = layout_.block_bytes();
  for (int64_t b = 0; b < layout_.num_blocks; ++b) {
    const std::byte* from = in.data() + static_cast<size_t>(b) * bytes;
    if (value)
      std::memcpy(block(layer, value, b), from, bytes);
    else
      transpose(layout_, from, block(layer, value, b), layout_.block_size, layout_.head_size);
  }
}

void KvCache::zero_block(int64_t layer, int64_t block_index) {
  std::memset(block(layer, false, block_index), 0, 2 * layout_.block_bytes());
}

void KvCache::copy_block(int64_t layer, int64_t from, int64_t to) {
  std::memmove(block(layer, false, to), block(layer, false, from), 2 * layout_.block_bytes());
}

void KvCache::save_block(int64_t layer, int64_t block_index, std::byte* host) const {
  const size_t bytes = 2 * layout_.block_bytes();
  std::memcpy(host + static_cast<size_t>(layer) * bytes, block(layer, false, block_index), bytes);
}

void KvCache::load_block(int64_t layer, const std::byte* host, int64_t block_index) {
  const size_t bytes = 2 * layout_.block_bytes();
  std::memcpy(block(layer, false, block_index), host + static_cast<size_t>(layer) * bytes, bytes);
}

}  // namespace ingot::cpu
