#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "core/half.h"

namespace ingot::test {

// K or V of one layer as numbers: elements [num_blocks, kv_heads, block_size, head_size] (integers for int8) and what
// they are multiplied by, [num_blocks, kv_heads, block_size] (ones for the other types).
struct KvNumbers {
  std::vector<float> elements, scales;

  // elements * scales
  std::vector<float> values(int64_t head_size) const {
    std::vector<float> out(elements.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = elements[i] * scales[i / static_cast<size_t>(head_size)];
    return out;
  }
};

inline size_t kv_rows(const KvLayout& kv) { return static_cast<size_t>(kv.num_blocks * kv.kv_heads * kv.block_size); }

// As Backend::read_cache gives it.
inline KvNumbers decode_kv(const KvLayout& kv, std::span<const std::byte> bytes) {
  KvNumbers out;
  const size_t in_head = static_cast<size_t>(kv.block_size * kv.head_size);
  for (size_t at = 0; at < bytes.size(); at += kv.head_bytes()) {
    const std::byte* head = bytes.data() + at;
    for (size_t i = 0; i < in_head; ++i) {
      const std::byte* element = head + i * kv_element_bytes(kv.dtype);
      uint16_t half = 0;
      float x = 0;
      if (kv.dtype == KvType::f32) {
        std::memcpy(&x, element, 4);
      } else if (kv.dtype == KvType::int8) {
        x = static_cast<float>(static_cast<int8_t>(*element));
      } else {
        std::memcpy(&half, element, 2);
        x = kv.dtype == KvType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
      out.elements.push_back(x);
    }
    for (int64_t i = 0; i < kv.block_size; ++i) {
      float scale = 1.0f;
      if (kv.dtype == KvType::int8) std::memcpy(&scale, head + in_head + static_cast<size_t>(i) * 4, 4);
      out.scales.push_back(scale);
    }
  }
  return out;
}

inline std::vector<std::byte> encode_kv(const KvLayout& kv, const KvNumbers& numbers) {
  std::vector<std::byte> bytes(static_cast<size_t>(kv.num_blocks) * kv.block_bytes());
  const size_t in_head = static_cast<size_t>(kv.block_size * kv.head_size);
  for (size_t h = 0; h * kv.head_bytes() < bytes.size(); ++h) {
    std::byte* head = bytes.data() + h * kv.head_bytes();
    for (size_t i = 0; i < in_head; ++i) {
      const float x = numbers.elements[h * in_head + i];
      std::byte* element = head + i * kv_element_bytes(kv.dtype);
      const uint16_t half = kv.dtype == KvType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      if (kv.dtype == KvType::f32)
        std::memcpy(element, &x, 4);
      else if (kv.dtype == KvType::int8)
        *element = static_cast<std::byte>(static_cast<int8_t>(std::clamp(x, -127.0F, 127.0F)));
      else
        std::memcpy(element, &half, 2);
    }
    if (kv.dtype == KvType::int8)
      std::memcpy(head + in_head, numbers.scales.data() + h * static_cast<size_t>(kv.block_size),
                  static_cast<size_t>(kv.block_size) * 4);
  }
  return bytes;
}

}  // namespace ingot::test
