#pragma once

#include "common.h"

// How a packed weight matrix lies in device memory, and how a kernel reads it. Written by backend/metal/linear/pack.cc.
//
// Rows lie in panels of 8, the last one filled up with zeros. A panel has up to three planes, one after another:
//   codes  low bits of the columns (or the numbers themselves), 16 bytes a unit (low bits of 2: 8; f32: 32)
//   high   high bits, for formats whose codes have 3, 5 or 6 bits
//   meta   scales
// A *unit* is what a lane takes at a time: 8 columns of f32, f16 and bf16, 16 of 8 bits, 32 of the others. Codes and
// high bits are blocks of four units, [8 rows][4 units] each, and scales blocks of 256 columns, [8 rows]: what a
// simdgroup loads at once, four lanes a row, is 512 bytes in a row. Where the columns are no multiple of a block, and
// in f32, each row of a plane is contiguous instead: PackedPlanes has the distances. Together the planes are as large
// as the tensor in the file (rows of f32 are padded, with zeros, to a multiple of 8 columns, those of f16 and bf16 to
// 32), and every plane starts at a multiple of 16 bytes.
//
// Codes lie in pairs, 16 bits apart, so that `word >> shift & mask` gives columns 2i and 2i + 1 as two 16-bit fields:
//   8 bits  a word is 4 columns: shifts 0, 8
//   4 bits  a word is 8 columns: shifts 2, 6, 10, 14, where the lowest two bits of the word follow the highest: the
//   word,
//           and the same turned by 8 bits, have two pairs each in the lower ten bits of their halves
//   2 bits  a word is 16 columns: shifts 0, 2, ... 14
//   1 bit   a word is 32 columns: shifts 0, 1, ... 15
// A weight is scale * (code - zero) + min; codes of 4 bits may stand for numbers of 8 bits, which come with the planes.
//
// Meta, little-endian:
//   block        f16 d, a block of 32
//   block_min    f16 d, f16 min, a block of 32
//   super16_min  a block of 256: f16 d, f16 dmin; u8 [16] scale | min << 4, of 16 columns each
//   super16_six  a block of 256: f16 d; pairs (scales of the halves of 32 columns, 32 too high)
//   super32_min  a block of 256: f16 d, f16 dmin; then as in the file, i < 4: u8 [4] scale i | scale i + 4 >> 4 << 6;
//                u8 [4] the same of mins; u8 [4] lower halves of scale i + 4 | of min i + 4 << 4
//   super16      a block of 256: i8 [16] scales of 16 columns each; f16 d
// Pairs are 8 times (a, b) of 6 bits: u8 [8] low nibbles a | b << 4, then u8 [4] their high bits, two a byte:
// (a >> 4 | (b >> 4) << 2) in the low nibble for even, in the high nibble for odd ones.

// Loops with constant bounds that hold arrays in registers must go away altogether.
#define PACKED_UNROLL _Pragma("clang loop unroll(full)")

struct PackedRow {
  device const uchar* codes;
  device const uchar* high;
  device const uchar* meta;
  uint code_block, high_block, meta_block;
  uint4 numbers;
};

// A unit as loaded, before any arithmetic, so that many loads can be in flight.
struct PackedUnit {
  uint4 codes;
  uint4 more;  // f32: columns 4 to 7
  uint2 high;
  uint d;    // f16 bits: d | min or dmin << 16
  uint sub;  // scales inside a block of 256, see packed_scales
  uint4 numbers;
};

// Eight columns.
struct Float8 {
  float4 low, high;
};

// Scale and min of the first and second half of a unit.
struct PackedScales {
  float2 scale, min;
};

METAL_FUNC constexpr uint packed_low_bits(uint format) { return format >> kPackedLowBits & 15; }
METAL_FUNC constexpr uint packed_high_bits(uint format) { return format >> kPackedHighBits & 15; }
METAL_FUNC constexpr uint packed_kind(uint format) { return format >> kPackedScales & 15; }
METAL_FUNC constexpr uint packed_zero(uint format) { return format >> kPackedZero & 255; }
METAL_FUNC constexpr bool packed_has_numbers(uint format) { return (format >> kPackedNumbers & 1) != 0; }
// Of a code, or of the number that it stands for.
METAL_FUNC constexpr uint packed_code_bits(uint format) {
  return packed_has_numbers(format) ? 8 : packed_low_bits(format) + packed_high_bits(format);
}
METAL_FUNC constexpr bool packed_has_min(uint format) {
  return packed_kind(format) == packed_block_min || packed_kind(format) == packed_super32_min ||
         packed_kind(format) == packed_super16_min;
}
METAL_FUNC constexpr uint packed_unit_columns(uint format) {
  return format <= packed_bf16 ? 8 : packed_low_bits(format) == 8 ? 16 : 32;
}

METAL_FUNC PackedRow packed_row(device const uchar* matrix, constant PackedPlanes& planes, uint row) {
  device const uchar* panel = matrix + ulong(row / 8) * planes.panel_bytes;
  PackedRow r;
  r.codes = panel + row % 8 * planes.code_stride;
  r.high = panel + planes.high_offset + row % 8 * planes.high_stride;
  r.meta = panel + planes.meta_offset + row % 8 * planes.meta_stride;
  r.code_block = planes.code_block;
  r.high_block = planes.high_block;
  r.meta_block = planes.meta_block;
  r.numbers = uint4(planes.numbers[0], planes.numbers[1], planes.numbers[2], planes.numbers[3]);
  return r;
}

METAL_FUNC constexpr uint packed_unit_bytes(uint format) {
  return format == packed_f32 ? 32 : packed_low_bits(format) == 2 ? 8 : 16;
}

// Codes and high bits of a unit. `format` must be a constant: every branch on it is decided by the compiler.
METAL_FUNC PackedUnit packed_load_codes(uint format, PackedRow row, uint unit) {
  PackedUnit u;
  u.more = uint4(0);
  u.high = uint2(0);
  u.d = 0;
  u.sub = 0;
  u.numbers = row.numbers;
  const uint block = unit / 4, place = unit % 4;
  device const uchar* codes = row.codes + block * row.code_block + place * packed_unit_bytes(format);
  if (packed_unit_bytes(format) == 8)
    u.codes = uint4(*(device const uint2*)codes, 0, 0);
  else
    u.codes = *(device const uint4*)codes;
  if (format == packed_f32) u.more = ((device const uint4*)codes)[1];
  if (format <= packed_bf16) return u;
  device const uchar* high = row.high + block * row.high_block;
  if (packed_high_bits(format) == 1) u.high.x = ((device const uint*)high)[place];
  if (packed_high_bits(format) == 2) u.high = ((device const uint2*)high)[place];
  return u;
}

METAL_FUNC PackedUnit packed_load(uint format, PackedRow row, uint unit) {
  PackedUnit u = packed_load_codes(format, row, unit);
  if (format <= packed_bf16) return u;
  const uint units = 256 / packed_unit_columns(format);  // of a block of scales
  const uint group = unit % units;
  device const uchar* meta = row.meta + unit / units * row.meta_block;
  const uint kind = packed_kind(format);
  if (kind == packed_block) u.d = ((device const ushort*)meta)[packed_low_bits(format) == 8 ? group / 2 : group];
  if (kind == packed_block_min) u.d = ((device const uint*)meta)[group];
  if (kind == packed_super16_min) {
    u.d = ((device const uint*)meta)[0];
    u.sub = ((device const ushort*)meta)[2 + group];
  }
  if (kind == packed_super16_six) {
    u.d = ((device const ushort*)meta)[0];
    u.sub = meta[2 + group] | uint(meta[10 + group / 2]) << 8;
  }
  if (kind == packed_super32_min) {
    const uint i = group % 4;
    u.d = ((device const uint*)meta)[0];
    u.sub = meta[4 + i] | uint(meta[8 + i]) << 8 | uint(meta[12 + i]) << 16 | group / 4 << 24;
  }
  if (kind == packed_super16) {
    u.d = ((device const ushort*)meta)[8];
    u.sub = ((device const ushort*)meta)[group];
  }
  if (kind == packed_super16_six && group % 2 == 1) u.sub = (u.sub & 0xffu) | (u.sub >> 4 & 0xf00u);
  return u;
}

// Bytes of the scales of 256 columns.
METAL_FUNC constexpr uint packed_meta_bytes(uint format) {
  return packed_kind(format) == packed_block_min     ? 32
         : packed_kind(format) == packed_super16_min ? 20
         : packed_kind(format) == packed_super16_six ? 14
         : packed_kind(format) == packed_super16     ? 18
                                                     : 16;
}
// Where they are 16, lanes may load them all at once, and pick theirs later.
METAL_FUNC constexpr bool packed_has_wide_meta(uint format) {
  return format > packed_bf16 && packed_meta_bytes(format) == 16;
}
METAL_FUNC uint4 packed_load_meta(PackedRow row, uint block) {
  return *(device const uint4*)(row.meta + block * row.meta_block);
}
METAL_FUNC PackedScales packed_scales(uint format, PackedUnit u) {
  const float2 d = float2(as_type<half2>(u.d));
  PackedScales s;
  s.scale = float2(d.x);
  s.min = float2(0.0f);
  const uint kind = packed_kind(format);
  if (kind == packed_block_min) s.min = float2(d.y);
  if (kind == packed_super16_min) {
    s.scale = d.x * float2(float(u.sub & 15u), float(u.sub >> 8 & 15u));
    s.min = -d.y * float2(float(u.sub >> 4 & 15u), float(u.sub >> 12));
  }
  if (kind == packed_super16_six) {
    const uint a = (u.sub & 15u) | (u.sub >> 4 & 0x30u);
    const uint b = (u.sub >> 4 & 15u) | (u.sub >> 6 & 0x30u);
    s.scale = d.x * (float2(float(a), float(b)) - 32.0f);
  }
  if (kind == packed_super32_min) {
    const bool second = u.sub >> 24 != 0;
    const uint a = second ? (u.sub >> 16 & 15u) | (u.sub >> 2 & 0x30u) : u.sub & 63u;
    const uint b = second ? (u.sub >> 20 & 15u) | (u.sub >> 10 & 0x30u) : u.sub >> 8 & 63u;
    s.scale = float2(d.x * float(a));
    s.min = float2(-d.y * float(b));
  }
  if (kind == packed_super16) {
    const char2 sub = as_type<char2>(ushort(u.sub));
    s.scale = d.x * float2(float(sub.x), float(sub.y));
  }
  return s;
}

// Codes 2i and 2i + 1 of a chunk of 8 columns, or the numbers that they stand for, 16 bits apart.
METAL_FUNC uint packed_codes(uint format, PackedUnit u, uint chunk, uint i) {
  uint bits = 0;
  if (packed_low_bits(format) == 8) bits = u.codes[chunk * 2 + i / 2] >> (i % 2 * 8) & 0x00ff00ffu;
  if (packed_low_bits(format) == 4)
    bits = (i < 3 ? u.codes[chunk] >> (i * 4 + 2) : rotate(u.codes[chunk], 18u)) & 0x000f000fu;
  if (packed_low_bits(format) == 2) bits = u.codes[chunk / 2] >> (chunk % 2 * 8 + i * 2) & 0x00030003u;
  if (packed_high_bits(format) == 1) bits |= (u.high.x >> (chunk * 4 + i) & 0x00010001u) << packed_low_bits(format);
  if (packed_high_bits(format) == 2)
    bits |= (u.high[chunk / 2] >> (chunk % 2 * 8 + i * 2) & 0x00030003u) << packed_low_bits(format);
  return packed_has_numbers(format) ? bytes_of(u.numbers, bits) : bits;
}

// The same less the zero point. 1024 + code is a half whose low bits are the code.
METAL_FUNC float2 packed_pair(uint format, PackedUnit u, uint chunk, uint i) {
  return float2(as_type<half2>(packed_codes(format, u, chunk, i) | 0x64006400u) -
                half2(half(1024 + packed_zero(format))));
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
    // Units of 32 columns may have two scales; a unit of bytes is half a block.
    const bool second = packed_unit_columns(format) == 32 && chunk >= 2;
    const float4 scale = float4(second ? s.scale.y : s.scale.x);
    const float4 min = float4(second ? s.min.y : s.min.x);
    w.low = fma(float4(packed_pair(format, u, chunk, 0), packed_pair(format, u, chunk, 1)), scale, min);
    w.high = fma(float4(packed_pair(format, u, chunk, 2), packed_pair(format, u, chunk, 3)), scale, min);
  }
  return w;
}

// ---- as halves, for the matrix unit ---------------------------------------------------------------------------------
//
// Weights are rounded to a half, and come out packed_boost() times too large.
//
// Where subnormal halves can be used, bits of a code in the low bits of a half are the code times a power of two, and
// one fma makes a weight of it; a factor below 1 makes room for that power in the scales, which may be up to 4 (of 8
// bits: 1). A weight of 4 bits is up to 15 times its scale, of 8 bits 128 times. Elsewhere 1024 + code is a half, and a
// factor above 1 keeps small scales normal; weights may be up to 4,000.

METAL_FUNC constexpr bool packed_is_subnormal(uint format) { return kHalfSubnormals; }
// Codes of 4 bits are used where they lie in their word: even pairs in bits 2 to 5 of a half, odd ones in bits 6 to 9.
METAL_FUNC constexpr bool packed_is_nibbles(uint format) { return packed_code_bits(format) == 4; }
METAL_FUNC constexpr float packed_boost(uint format) {
  if (!packed_is_subnormal(format)) return 16.0f;
  return packed_is_nibbles(format) || packed_code_bits(format) == 8 ? 0x1p-8f : 0x1p-7f;
}
// What a scale is multiplied by. A code in bits n and up of a subnormal half is 2^(n - 24) times itself: that of bytes
// n is 0, of nibbles 2, of others 4.
METAL_FUNC constexpr float packed_factor(uint format) {
  const uint place = packed_code_bits(format) == 8 ? 0 : packed_is_nibbles(format) ? 2 : 4;
  return packed_boost(format) * (packed_is_subnormal(format) ? float(1u << (24 - place)) : 1.0f);
}

// What is taken off a code: the zero point, or about the middle, for which the min makes up: so both terms are small.
METAL_FUNC constexpr uint packed_middle(uint format) {
  return packed_has_min(format) ? (1u << packed_code_bits(format)) / 2 : packed_zero(format);
}
// Of the first and second half of a unit; of subnormal nibbles, which have one scale a unit, of even and odd pairs. A
// weight is code * scale + min; without subnormals (code - middle) * scale + min.
struct PackedHalfScales {
  half2 scale[2], min[2];
};
METAL_FUNC constexpr bool packed_turns(uint format) { return packed_is_subnormal(format) && packed_is_nibbles(format); }
METAL_FUNC PackedHalfScales packed_half_scales(uint format, PackedScales s) {
  PackedHalfScales h;
  PACKED_UNROLL for (uint i = 0; i < 2; ++i) {
    const float shift = packed_is_subnormal(format) ? -float(packed_zero(format))
                        : packed_has_min(format)    ? float(packed_middle(format))
                                                    : 0.0f;
    h.scale[i] = half2(half(s.scale[i] * packed_factor(format)));
    h.min[i] = half2(half(fma(s.scale[i], shift, s.min[i]) * packed_boost(format)));
  }
  if (packed_turns(format)) h.scale[1] = h.scale[0] * half2(0.0625h);
  return h;
}

// The scales of a unit of the four of step `step` of 256 columns out of all of theirs; `picker` says of which.
METAL_FUNC uint packed_picker(uint format, uint place) {
  return packed_kind(format) == packed_super32_min ? byte_picker(place)
                                                   : half_picker(packed_low_bits(format) == 8 ? place / 2 : place);
}
METAL_FUNC PackedHalfScales packed_pick(uint format, uint4 meta, uint step, uint picker) {
  PackedHalfScales h;
  half2 scale, min;
  if (packed_kind(format) == packed_super32_min) {
    // (scale, min) of the unit in the lower six bits, and the high bits of those of the unit four on; their low bits.
    // A number with an exponent above it is that much too large.
    const uint pair = bytes_at(meta.y, meta.z, picker);
    half2 sub;
    if (step == 0) {
      sub = as_type<half2>((pair & 0x003f003fu) | 0x64006400u) - half2(1024.0h);
    } else {
      const half2 low = as_type<half2>((bytes_at(meta.w, meta.w, picker) & 0x00f0000fu) | 0x54006400u);
      const half2 high = as_type<half2>((pair & 0x00c000c0u) | 0x5c005c00u);
      sub = (low - half2(1280.0h, 320.0h)) + high;
    }
    const half2 s = sub * (as_type<half2>(meta.x) * half2(half(packed_factor(format)), -1.0h));
    const half2 less = s * half2(0.0625h, half(packed_boost(format)));
    scale = half2(s.x);
    min = half2(less.y);
    h.scale[1] = half2(less.x);
    if (!packed_is_subnormal(format)) min = fma(scale, half2(half(float(packed_middle(format)))), min);
  } else {
    half2 d;
    if (packed_low_bits(format) == 8) {
      const uint both = step == 0 ? meta.x : step == 1 ? meta.y : step == 2 ? meta.z : meta.w;
      d = halves_at(both, both, picker);
    } else {
      d = step == 0 ? halves_at(meta.x, meta.y, picker) : halves_at(meta.z, meta.w, picker);
    }
    // (scale, min) again, in two steps where the factor is more than a half.
    const float more = packed_factor(format) > 32768.0f ? 256.0f : 1.0f;
    const float zero = packed_is_subnormal(format) ? -float(packed_zero(format)) * packed_boost(format) : 0.0f;
    half2 s = d * half2(half(packed_factor(format) / more), half(zero));
    if (more > 1.0f) s = s * half2(half(more), 1.0h);
    scale = half2(s.x);
    min = half2(s.y);
    h.scale[1] = half2((s * half2(0.0625h)).x);
  }
  h.scale[0] = scale;
  if (!packed_turns(format)) h.scale[1] = scale;
  h.min[0] = h.min[1] = min;
  return h;
}

// Codes 2i and 2i + 1 of a chunk of 8 columns as subnormal halves.
METAL_FUNC half2 packed_subnormal_pair(uint format, PackedUnit u, uint chunk, uint i) {
  if (packed_low_bits(format) == 8) {
    const uint word = u.codes[chunk * 2 + i / 2];
    return as_type<half2>(i % 2 == 0 ? word & 0x00ff00ffu : odd_bytes(word));
  }
  if (packed_is_nibbles(format)) {
    const uint word = i < 2 ? u.codes[chunk] : turned_bytes(u.codes[chunk]);
    return as_type<half2>(word & (i % 2 == 0 ? 0x003c003cu : 0x03c003c0u));
  }
  const uint codes = packed_codes(format, u, chunk, i);
  return as_type<half2>(packed_code_bits(format) == 8 ? codes : codes << 4);
}

// Columns 2i and 2i + 1 of a chunk as numbers.
METAL_FUNC half2 packed_decode_half(uint format, PackedUnit u, PackedHalfScales s, uint chunk, uint i) {
  const uint second = packed_unit_columns(format) == 32 && chunk >= 2 ? 1 : 0;
  if (packed_is_subnormal(format))
    return fma(packed_subnormal_pair(format, u, chunk, i), s.scale[packed_turns(format) ? i % 2 : second],
               s.min[second]);
  const half2 code = as_type<half2>(packed_codes(format, u, chunk, i) | 0x64006400u) -
                     half2(half(1024.0f + float(packed_middle(format))));
  return packed_has_min(format) ? fma(code, s.scale[second], s.min[second]) : code * s.scale[second];
}
