#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace ingot {

// Element formats of stored tensors. The block formats are those of GGUF, byte for byte.
enum class DType : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl };

// What a block has for scales. Blocks of 256 elements scale their sub-blocks by small integers: there scale = d * the
// integer, min = -dmin * its own.
enum class Scales : uint8_t {
  none,
  block,        // f16 d, which is the scale
  block_min,    // f16 d, f16 min
  super32_min,  // f16 d, f16 dmin; scales and mins of 32 elements each, of 6 bits, in 12 bytes
  super16,      // f16 d; i8 [16] scales of 16 elements each
  super16_six,  // f16 d; scales of 16 elements each, of 6 bits and 32 too high, in 12 bytes
  super16_min,  // f16 d, f16 dmin; u8 [16] scale | min << 4 of 16 elements each
};
constexpr bool has_min(Scales scales) {
  return scales == Scales::block_min || scales == Scales::super32_min || scales == Scales::super16_min;
}

// How the elements of a block are stored: each is scale * (code - zero) + min, where codes of 4 bits may stand for
// other numbers than their own. In which order codes lie is said where they are read, formats/block_codes.h.
struct BlockLayout {
  int low_bits = 0;   // of a code: 8, 4 or 2; 0 in plain types
  int high_bits = 0;  // and the bits above them, which lie apart: 0, 1 or 2
  int zero = 0;
  Scales scales = Scales::none;
  // Where in a block, in bytes.
  int d_at = 0, sub_at = 0, high_at = 0, low_at = 0;  // d and what follows it; integers; high bits; low bits
  std::array<uint8_t, 16> numbers = {};               // what codes of 4 bits stand for; all 0: themselves

  constexpr bool has_numbers() const { return numbers != std::array<uint8_t, 16>{}; }
  constexpr int number(int code) const { return has_numbers() ? numbers[static_cast<size_t>(code)] : code; }
};
// Signed numbers for codes to stand for, 128 added: their zero is 128.
constexpr std::array<uint8_t, 16> signed_numbers(const std::array<int, 16>& numbers) {
  std::array<uint8_t, 16> above = {};
  for (size_t i = 0; i < 16; ++i) above[i] = static_cast<uint8_t>(numbers[i] + 128);
  return above;
}

inline constexpr std::array<uint8_t, 16> kNonLinear =
    signed_numbers({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});

// All that is known of a format stands in one row.
struct DTypeInfo {
  DType type;
  std::string_view name;  // "f16", "q4_1": as printed and as parsed
  int block_size;         // elements a block (1 for plain types)
  int block_bytes;        // bytes a block
  uint32_t gguf_type;     // GGUF's number of the type,
  uint32_t file_type;     // and llama.cpp's of a file whose matrices are mostly of it
  BlockLayout layout = {};
};

inline constexpr DTypeInfo kDTypes[] = {
    // a block: elements, bytes; file numbers; its codes: low bits, high bits, zero; scales; d, sub, high, low at
    {DType::f32, "f32", 1, 4, 0, 0},
    {DType::f16, "f16", 1, 2, 1, 1},
    {DType::bf16, "bf16", 1, 2, 30, 32},
    {DType::q4_0, "q4_0", 32, 18, 2, 2, {4, 0, 8, Scales::block, 0, 0, 0, 2}},
    {DType::q4_1, "q4_1", 32, 20, 3, 3, {4, 0, 0, Scales::block_min, 0, 0, 0, 4}},
    {DType::q5_0, "q5_0", 32, 22, 6, 8, {4, 1, 16, Scales::block, 0, 0, 2, 6}},
    {DType::q5_1, "q5_1", 32, 24, 7, 9, {4, 1, 0, Scales::block_min, 0, 0, 4, 8}},
    {DType::q8_0, "q8_0", 32, 34, 8, 7, {8, 0, 128, Scales::block, 0, 0, 0, 2}},
    {DType::q2_k, "q2_k", 256, 84, 10, 10, {2, 0, 0, Scales::super16_min, 80, 0, 0, 16}},
    {DType::q3_k, "q3_k", 256, 110, 11, 12, {2, 1, 4, Scales::super16_six, 108, 96, 0, 32}},
    {DType::q4_k, "q4_k", 256, 144, 12, 14, {4, 0, 0, Scales::super32_min, 0, 4, 0, 16}},
    {DType::q5_k, "q5_k", 256, 176, 13, 16, {4, 1, 0, Scales::super32_min, 0, 4, 16, 48}},
    {DType::q6_k, "q6_k", 256, 210, 14, 18, {4, 2, 32, Scales::super16, 208, 192, 128, 0}},
    {DType::iq4_nl, "iq4_nl", 32, 18, 20, 25, {4, 0, 128, Scales::block, 0, 0, 0, 2, kNonLinear}},
};
inline constexpr int kNumDTypes = static_cast<int>(std::size(kDTypes));

constexpr const DTypeInfo& dtype_info(DType type) { return kDTypes[static_cast<size_t>(type)]; }
constexpr bool dtypes_are_in_order() {
  for (int i = 0; i < kNumDTypes; ++i)
    if (static_cast<int>(kDTypes[i].type) != i) return false;
  return true;
}
static_assert(dtypes_are_in_order());

constexpr std::string_view dtype_name(DType type) { return dtype_info(type).name; }
constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& info : kDTypes)
    if (info.name == name) return info.type;
  return std::nullopt;
}

// Bytes of `elements` consecutive elements; `elements` must be a multiple of the block size.
constexpr size_t dtype_bytes(DType type, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  return elements / static_cast<size_t>(info.block_size) * static_cast<size_t>(info.block_bytes);
}
constexpr bool is_block_quantized(DType type) { return dtype_info(type).block_size > 1; }

}  // namespace ingot
