#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

// How packed weights lie in memory. One layout serves every ISA.
//
// A matrix is cut into panels of 16 output rows, so that one vector lane is one output row. A kernel reads a panel from
// front to back exactly once, and so one stream of memory: that is what the prefetchers of processors follow (two
// streams, codes and scales apart, came at a third of the speed).
//
// A panel of a block format is a record for every 32 columns: codes, then scales. Those with super-blocks have a header
// before every 8 records. "Word j of row r" is the 4 columns 4j..4j+3 of that row, one a byte.
//   8 bits    [8 j][16 r] words. Stored unsigned, value + 128.
//   low 4     [4 j][16 r] words: low nibbles are word j, high nibbles word j + 4
//   low 2     [2 h][16 r] words: bits 2t..2t+1 of each byte are word 4h + t
//   high 1    [16 r] words, after the low ones: bit j of each byte belongs to word j
//   high 2    [2 h][16 r] words, likewise: bits 2t..2t+1 belong to word 4h + t
// Scales, f16 unless said otherwise:
//   block          scale [16 r]
//   block_min      scale [16 r], min [16 r]
//   super32_min    header d [16 r], dmin [16 r]; u8 scale [16 r], u8 min [16 r]
//   super16        header d [16 r]; i8 scale of columns 0..15 [16 r], of columns 16..31 [16 r]; so is super16_six here
//   super16_min    header d [16 r], dmin [16 r]; u8 scale | min << 4 of columns 0..15 [16 r], of columns 16..31 [16 r]
// A weight is scale * (code - zero_point) + min, where codes may stand for other numbers of 8 bits, and super-blocks
// have scale = d * sub-scale, min = -dmin * sub-min.
//
// Float formats: f32 and f16 [cols][16 r]; bf16 [ceil(cols / 2)][16 r][2 columns].
//
// This header is included by files compiled for special instruction sets: compile-time values only, no functions that
// could be emitted.
namespace ingot::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kBlock = 32;  // columns with one activation scale
inline constexpr int kSuper = 256;

struct PanelFormat {
  int low_bits;   // 8, 4 or 2; 0 for floats
  int high_bits;  // 0, 1 or 2
  int zero_point;
  Scales scales;
  int header_bytes;  // before every 8 records; 0: none
  int code_bytes;    // of a record: 16 rows x 32 columns
  int record_bytes;  // codes and scales
  bool has_numbers;
  uint8_t numbers[16];  // that codes stand for, unsigned, if they do

  // Of what is multiplied.
  constexpr int code_bits() const { return has_numbers ? 8 : low_bits + high_bits; }
  // Records that share a header.
  constexpr int group() const { return header_bytes > 0 ? kSuper / kBlock : 1; }
};

// All of it follows from the format's row in core/dtype.h.
constexpr PanelFormat panel_format(DType type) {
  const DTypeInfo& info = dtype_info(type);
  const BlockLayout& stored = info.layout;
  PanelFormat format = {};
  if (stored.scales == Scales::none) {
    format.code_bytes = format.record_bytes = kPanelRows * kBlock * info.block_bytes;
    return format;
  }
  format.low_bits = stored.low_bits;
  format.high_bits = stored.high_bits;
  format.zero_point = stored.zero;
  format.has_numbers = stored.has_numbers();
  for (size_t i = 0; i < 16; ++i) format.numbers[i] = stored.numbers[i];
  format.scales = stored.scales == Scales::super16_six ? Scales::super16 : stored.scales;
  const int halves = has_min(stored.scales) ? 2 : 1;  // f16 a row
  format.header_bytes = info.block_size == kSuper ? halves * 2 * kPanelRows : 0;
  format.code_bytes = kPanelRows * kBlock * (stored.low_bits + stored.high_bits) / 8;
  format.record_bytes = format.code_bytes + (format.header_bytes > 0 ? 2 : halves * 2) * kPanelRows;
  return format;
}

// A panel whose codes were taken apart beforehand, for products that meet it again and again: the codes of its records
// are [8 j][16 r] words whatever they were, signed where the kernels multiply them so. Scales and headers as before.
constexpr PanelFormat unpacked_format(DType type) {
  PanelFormat format = panel_format(type);
  format.record_bytes += kPanelRows * kBlock - format.code_bytes;
  format.code_bytes = kPanelRows * kBlock;
  return format;
}
// Of the first blocks of a panel, whole groups of them.
constexpr size_t blocks_bytes(const PanelFormat& format, int64_t blocks) {
  return static_cast<size_t>(blocks * format.record_bytes + blocks / format.group() * format.header_bytes);
}
constexpr size_t unpacked_panel_bytes(DType type, int64_t blocks) {
  return blocks_bytes(unpacked_format(type), blocks);
}

// Whether the kernels need the activations' sums over halves of a block.
constexpr bool needs_halves(DType type) {
  const Scales scales = panel_format(type).scales;
  return scales == Scales::super16 || scales == Scales::super16_min;
}
constexpr bool is_float_format(DType type) { return panel_format(type).low_bits == 0; }

// Activations of the integer kernels: tiles of R rows, and in a tile for every 32 columns one record:
//   int8 codes [R][32]; f32 d [R]; i32 minus the sum of the codes [R]; f32 d * sum of the codes [R];
//   with halves also: i32 minus the sum of columns 0..15 [R], of columns 16..31 [R]; f32 d * those sums [R], [R]
// An activation is d * code. Codes lie in [-127, 127].
//
// Transformers have a few huge activations, and one of them leaves its 31 neighbours hardly any of the 8 bits. So what
// the codes of such a block miss is quantized once more, into a second, fine record: an activation is then the sum of
// both. A block has one when its largest value is above kOutlier times the root mean square of its row in the slice
// of columns (most products have one slice, all of them), which depends on the row alone. (SmolLM2-135M: one block in
// six; the logits' error falls to a third.)
//
// The memory of a slice of a tile: the records of its blocks; the fine records of its blocks, of which only the rows
// that need one are written and read; u32 [blocks]: which rows those are, a bit each.
inline constexpr float kOutlier = 4.0f;

__attribute__((always_inline)) constexpr size_t activation_record_bytes(int rows, bool halves) {
  return size_t(rows) * (halves ? 60 : 44);
}
__attribute__((always_inline)) constexpr size_t activation_bytes(int rows, int64_t blocks, bool halves) {
  return size_t(blocks) * (2 * activation_record_bytes(rows, halves) + size_t(rows) * 4);
}

}  // namespace ingot::cpu
