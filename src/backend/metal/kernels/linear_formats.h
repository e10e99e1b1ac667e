#pragma once

#include <metal_stdlib>

using namespace metal;

// How a packed weight matrix lies in device memory, and how a kernel reads it. Written by backend/metal/linear.cc.
//
// Rows lie in panels of 8, the last one filled up with zeros. Panels of f16 and bf16 are blocks of 32 columns, one after
// another, each [8][32]: what a simdgroup loads at once is 512 bytes in a row. Other panels have up to three planes, one
// after another; a row is contiguous in each:
//   codes  low bits of the columns (or the numbers themselves), 16 bytes a unit (q2_k, q3_k: 8; f32: 32)
//   high   high bits, for formats whose codes have 3, 5 or 6 bits
//   meta   scales
// A *unit* is what a lane takes at a time: 8 columns of f32, f16 and bf16, 16 of q8_0, 32 of the others. Together the
// planes are as large as the tensor in the file (rows of f32 are padded, with zeros, to a multiple of 8 columns, those of
// f16 and bf16 to 32), and
// every plane starts at a multiple of 16 bytes.
//
// Codes lie in pairs, 16 bits apart, so that `word >> shift & mask` gives columns 2i and 2i + 1 as two 16-bit fields:
//   8 bits  a word is 4 columns: shifts 0, 8
//   4 bits  a word is 8 columns: shifts 0, 4, 8, 12
//   2 bits  a word is 16 columns: shifts 0, 2, ... 14
//   1 bit   a word is 32 columns: shifts 0, 1, ... 15
// A weight is scale * (code - zero) + min.
//
// Meta, little-endian:
//   q4_0 q5_0 q8_0  f16 d, a block of 32
//   q4_1 q5_1       f16 d, f16 min, a block of 32
//   q2_k            a block of 256: f16 d, f16 dmin; u8 [16] scale | min << 4, of 16 columns each
//   q3_k            a block of 256: f16 d; pairs (scales of the halves of 32 columns, 32 too high)
//   q4_k q5_k       a block of 256: f16 d, f16 dmin; pairs (scale, min of 32 columns)
//   q6_k            a block of 256: i8 [16] scales of 16 columns each; f16 d
// Pairs are 8 times (a, b) of 6 bits: u8 [8] low nibbles a | b << 4, then u8 [4] their high bits, two a byte:
// (a >> 4 | (b >> 4) << 2) in the low nibble for even, in the high nibble for odd ones.

// Loops with constant bounds that hold arrays in registers must go away altogether.
#define PACKED_UNROLL _Pragma("clang loop unroll(full)")

// The numbers of ingot::DType.
enum PackedFormat : uint {
  packed_f32,
  packed_f16,
  packed_bf16,
  packed_q4_0,
  packed_q4_1,
  packed_q5_0,
  packed_q5_1,
  packed_q8_0,
  packed_q2_k,
  packed_q3_k,
  packed_q4_k,
  packed_q5_k,
  packed_q6_k,
};

// Bytes: from row to row in each plane, from the start of a panel to the planes after the codes, of a panel.
struct PackedPlanes {
  uint code_stride;
  uint high_stride;
  uint meta_stride;
  uint high_offset;
  uint meta_offset;
  uint panel_bytes;
};

struct PackedRow {
  device const uchar* codes;
  device const uchar* high;
  device const uchar* meta;
};

// A unit as loaded, before any arithmetic, so that many loads can be in flight.
struct PackedUnit {
  uint4 codes;
  uint4 more;   // f32: columns 4 to 7
  uint2 high;
  uint d;       // f16 bits: d | min or dmin << 16
  uint sub;     // scales inside a block of 256, see packed_scales
};

// Eight columns.
struct Float8 {
  float4 low, high;
};

// Scale and min of the first and second half of a unit.
struct PackedScales {
  float2 scale, min;
};

METAL_FUNC constexpr uint packed_unit_columns(uint format) {
  return format <= packed_bf16 ? 8 : format == packed_q8_0 ? 16 : 32;
}
METAL_FUNC constexpr uint packed_low_bits(uint format) {
  return format == packed_q8_0 ? 8 : format == packed_q2_k || format == packed_q3_k ? 2 : 4;
}
METAL_FUNC constexpr uint packed_high_bits(uint format) {
  return format == packed_q6_k ? 2
         : format == packed_q3_k || format == packed_q5_0 || format == packed_q5_1 || format == packed_q5_k ? 1
                                                                                                             : 0;
}
METAL_FUNC constexpr uint packed_zero(uint format) {
  return format == packed_q4_0   ? 8
         : format == packed_q5_0 ? 16
         : format == packed_q8_0 ? 128
         : format == packed_q3_k ? 4
         : format == packed_q6_k ? 32
                                 : 0;
}
METAL_FUNC constexpr bool packed_is_k(uint format) { return format >= packed_q2_k; }

METAL_FUNC PackedRow packed_row(device const uchar* matrix, constant PackedPlanes& planes, uint row) {
  device const uchar* panel = matrix + ulong(row / 8) * planes.panel_bytes;
  PackedRow r;
  r.codes = panel + row % 8 * planes.code_stride;
  r.high = panel + planes.high_offset + row % 8 * planes.high_stride;
  r.meta = panel + planes.meta_offset + row % 8 * planes.meta_stride;
  return r;
}

// `format` must be a constant: every branch on it is decided by the compiler.
METAL_FUNC PackedUnit packed_load(uint format, PackedRow row, uint unit) {
  PackedUnit u;
  u.more = uint4(0);
  u.high = uint2(0);
  u.d = 0;
  u.sub = 0;
  if (format == packed_f32) {
    u.codes = ((device const uint4*)row.codes)[unit * 2];
    u.more = ((device const uint4*)row.codes)[unit * 2 + 1];
  } else if (packed_low_bits(format) == 2) {
    u.codes = uint4(((device const uint2*)row.codes)[unit], 0, 0);
  } else if (format == packed_f16 || format == packed_bf16) {
    u.codes = ((device const uint4*)row.codes)[unit / 4 * 32 + unit % 4];
  } else {
    u.codes = ((device const uint4*)row.codes)[unit];
  }
  if (format <= packed_bf16) return u;

  if (packed_high_bits(format) == 1) u.high.x = ((device const uint*)row.high)[unit];
  if (packed_high_bits(format) == 2) u.high = ((device const uint2*)row.high)[unit];

  const uint block = unit / 8, group = unit % 8;  // of 256 columns, and of 32 in it
  if (format == packed_q4_0 || format == packed_q5_0) u.d = ((device const ushort*)row.meta)[unit];
  if (format == packed_q8_0) u.d = ((device const ushort*)row.meta)[unit / 2];
  if (format == packed_q4_1 || format == packed_q5_1) u.d = ((device const uint*)row.meta)[unit];
  if (format == packed_q2_k) {
    u.d = ((device const uint*)row.meta)[block * 5];
    u.sub = ((device const ushort*)row.meta)[block * 10 + 2 + group];
  }
  if (format == packed_q3_k) {
    u.d = ((device const ushort*)row.meta)[block * 7];
    u.sub = row.meta[block * 14 + 2 + group] | uint(row.meta[block * 14 + 10 + group / 2]) << 8;
  }
  if (format == packed_q4_k || format == packed_q5_k) {
    u.d = ((device const uint*)row.meta)[block * 4];
    u.sub = row.meta[block * 16 + 4 + group] | uint(row.meta[block * 16 + 12 + group / 2]) << 8;
  }
  if (format == packed_q6_k) {
    u.d = ((device const ushort*)row.meta)[block * 9 + 8];
    u.sub = ((device const ushort*)row.meta)[block * 9 + group];
  }
  if (format == packed_q3_k || format == packed_q4_k || format == packed_q5_k) {
    if (group % 2 == 1) u.sub = (u.sub & 0xffu) | (u.sub >> 4 & 0xf00u);
  }
  return u;
}

METAL_FUNC PackedScales packed_scales(uint format, PackedUnit u) {
  const float2 d = float2(as_type<half2>(u.d));
  PackedScales s;
  s.scale = float2(d.x);
  s.min = float2(0.0f);
  if (format == packed_q4_1 || format == packed_q5_1) s.min = float2(d.y);
  if (format == packed_q2_k) {
    s.scale = d.x * float2(float(u.sub & 15u), float(u.sub >> 8 & 15u));
    s.min = -d.y * float2(float(u.sub >> 4 & 15u), float(u.sub >> 12));
  }
  if (format == packed_q3_k || format == packed_q4_k || format == packed_q5_k) {
    const uint a = (u.sub & 15u) | (u.sub >> 4 & 0x30u);
    const uint b = (u.sub >> 4 & 15u) | (u.sub >> 6 & 0x30u);
    if (format == packed_q3_k) {
      s.scale = d.x * (float2(float(a), float(b)) - 32.0f);
    } else {
      s.scale = float2(d.x * float(a));
      s.min = float2(-d.y * float(b));
    }
  }
  if (format == packed_q6_k) {
    const char2 sub = as_type<char2>(ushort(u.sub));
    s.scale = d.x * float2(float(sub.x), float(sub.y));
  }
  return s;
}

// Codes 2i and 2i + 1 of a chunk of 8 columns, less the zero point. 1024 + code is a half whose low bits are the code.
METAL_FUNC float2 packed_pair(uint format, PackedUnit u, uint chunk, uint i) {
  uint bits;
  if (packed_low_bits(format) == 8) bits = u.codes[chunk * 2 + i / 2] >> (i % 2 * 8) & 0x00ff00ffu;
  if (packed_low_bits(format) == 4) bits = u.codes[chunk] >> (i * 4) & 0x000f000fu;
  if (packed_low_bits(format) == 2) bits = u.codes[chunk / 2] >> (chunk % 2 * 8 + i * 2) & 0x00030003u;
  if (packed_high_bits(format) == 1) bits |= (u.high.x >> (chunk * 4 + i) & 0x00010001u) << packed_low_bits(format);
  if (packed_high_bits(format) == 2)
    bits |= (u.high[chunk / 2] >> (chunk % 2 * 8 + i * 2) & 0x00030003u) << packed_low_bits(format);
  return float2(as_type<half2>(bits | 0x64006400u) - half2(half(1024 + packed_zero(format))));
}

// Columns 8 * chunk to 8 * chunk + 7 of a unit as numbers.
METAL_FUNC Float8 packed_decode(uint format, PackedUnit u, PackedScales s, uint chunk) {
  Float8 w;
  if (format == packed_f32) {
    w.low = as_type<float4>(u.codes);
    w.high = as_type<float4>(u.more);
  } else if (format == packed_f16) {
    w.low = float4(float2(as_type<half2>(u.codes.x)), float2(as_type<half2>(u.codes.y)));
    w.high = float4(float2(as_type<half2>(u.codes.z)), float2(as_type<half2>(u.codes.w)));
  } else if (format == packed_bf16) {
    w.low = as_type<float4>(uint4(u.codes.x << 16, u.codes.x & 0xffff0000u, u.codes.y << 16, u.codes.y & 0xffff0000u));
    w.high = as_type<float4>(uint4(u.codes.z << 16, u.codes.z & 0xffff0000u, u.codes.w << 16, u.codes.w & 0xffff0000u));
  } else {
    // Units of 32 columns may have two scales; a unit of q8_0 is half a block.
    const bool second = packed_unit_columns(format) == 32 && chunk >= 2;
    const float4 scale = float4(second ? s.scale.y : s.scale.x);
    const float4 min = float4(second ? s.min.y : s.min.x);
    w.low = fma(float4(packed_pair(format, u, chunk, 0), packed_pair(format, u, chunk, 1)), scale, min);
    w.high = fma(float4(packed_pair(format, u, chunk, 2), packed_pair(format, u, chunk, 3)), scale, min);
  }
  return w;
}
