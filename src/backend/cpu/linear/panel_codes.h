#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/linear/format.h"
#include "core/half.h"

// Single numbers of a panel of a block format, see format.h.
namespace ingot::cpu {

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
inline float load_half(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

// The code of one column and row of a record, or the number that it stands for.
template <DType kType>
int panel_code(const uint8_t* record, int column, int row) {
  static constexpr PanelFormat kFormat = panel_format(kType);
  const int j = column / 4, at = row * 4 + column % 4;
  const uint8_t* high = record + kFormat.low_bits * 64;
  int code;
  if constexpr (kFormat.low_bits == 8) {
    code = record[j * 64 + at];
  } else if constexpr (kFormat.low_bits == 4) {
    code = record[j % 4 * 64 + at] >> (j / 4 * 4) & 15;
  } else {
    code = record[j / 4 * 64 + at] >> (j % 4 * 2) & 3;
  }
  if constexpr (kFormat.high_bits == 1) code |= (high[at] >> j & 1) << kFormat.low_bits;
  if constexpr (kFormat.high_bits == 2) code |= (high[j / 4 * 64 + at] >> (j % 4 * 2) & 3) << kFormat.low_bits;
  if constexpr (kFormat.has_numbers) code = kFormat.numbers[code];
  return code;
}

// Scale and min of one half of the columns of a record, and one row. `header` is that of its super-block, if any.
template <DType kType>
void panel_scale(const uint8_t* header, const uint8_t* record, int half, int row, float& scale, float& min) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const uint8_t* scales = record + kFormat.code_bytes;
  scale = load_half((kFormat.header_bytes > 0 ? header : scales) + 2 * row);
  min = 0.0f;
  if constexpr (kFormat.scales == Scales::block_min) {
    min = load_half(scales + 32 + 2 * row);
  } else if constexpr (kFormat.scales == Scales::super32_min) {
    min = -(load_half(header + 32 + 2 * row) * static_cast<float>(scales[16 + row]));
    scale *= static_cast<float>(scales[row]);
  } else if constexpr (kFormat.scales == Scales::super16) {
    scale *= static_cast<float>(static_cast<int8_t>(scales[16 * half + row]));
  } else if constexpr (kFormat.scales == Scales::super16_min) {
    const uint8_t packed = scales[16 * half + row];
    min = -(load_half(header + 32 + 2 * row) * static_cast<float>(packed >> 4));
    scale *= static_cast<float>(packed & 15);
  }
}

}  // namespace ingot::cpu
