#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

// Element formats of stored tensors. The block formats are those of GGUF, byte for byte.
enum class DType : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k };
inline constexpr int kNumDTypes = 13;

struct DTypeInfo {
  std::string_view name;  // "f16", "q4_1": as printed and as parsed
  int block_size;         // elements a block (1 for plain types)
  int block_bytes;        // bytes a block
};

const DTypeInfo& dtype_info(DType type);
inline std::string_view dtype_name(DType type) { return dtype_info(type).name; }
std::optional<DType> parse_dtype(std::string_view name);

// Bytes of `elements` consecutive elements; `elements` must be a multiple of the block size.
inline size_t dtype_bytes(DType type, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  return elements / info.block_size * info.block_bytes;
}
inline bool is_block_quantized(DType type) { return dtype_info(type).block_size > 1; }

}  // namespace ingot
