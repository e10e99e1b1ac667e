// Rows of a packed matrix as floats: the embedding.
//   out[t, :] = table[id(t), :] * scale (+ positions_table[positions[t], :])
// id(t) is token_ids[t], or what row -1 - token_ids[t] of the previous step sampled. Rows of tokens that other ranks have are zeros.
#include "linear_formats.h"

constant uint EMBED_FORMAT [[function_constant(kEmbedFormat)]];           // PackedFormat of the table
constant uint EMBED_FORMAT_POSITIONS [[function_constant(kEmbedFormatPositions)]];  // of the table of positions
constant bool EMBED_HAS_POSITIONS [[function_constant(kEmbedHasPositions)]];

// A row that does not exist (a sampled token of -1, say) reads as the nearest one that does.
METAL_FUNC uint embed_id(device const int* token_ids, device const int* previous, uint t) {
  const int id = token_ids[t];
  return uint(max(id >= 0 ? id : previous[-1 - id], 0));
}

// One thread takes one unit of one row.
kernel void embed(device const uchar* table [[buffer(0)]],
                  device const uchar* positions_table [[buffer(1), function_constant(EMBED_HAS_POSITIONS)]],
                  device const int* token_ids [[buffer(2)]],
                  device const int* positions [[buffer(3), function_constant(EMBED_HAS_POSITIONS)]],
                  device const int* previous [[buffer(4)]],
                  device float* out [[buffer(5)]],
                  constant EmbedParams& p [[buffer(6)]],
                  uint2 group [[threadgroup_position_in_grid]],
                  uint thread_index [[thread_index_in_threadgroup]],
                  uint2 threads [[threads_per_threadgroup]]) {
  const uint t = group.y, unit = group.x * threads.x + thread_index;
  const uint columns = packed_unit_columns(EMBED_FORMAT);
  const uint token = embed_id(token_ids, previous, t), id = token - p.first;
  if (unit * columns >= p.cols) return;
  if (p.zeros != 0 && token - p.here >= p.rows_here) {
    for (uint col = unit * columns; col < min((unit + 1) * columns, p.cols); ++col) out[ulong(t) * p.cols + col] = 0.0f;
    return;
  }
  if (id >= p.rows) return;
  const PackedUnit u = packed_load(EMBED_FORMAT, packed_row(table, p.planes, id), unit);
  const PackedScales s = packed_scales(EMBED_FORMAT, u);
  PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) {
    Float8 v = packed_decode(EMBED_FORMAT, u, s, chunk);
    v.low *= p.scale;
    v.high *= p.scale;
    const uint col = unit * columns + chunk * 8;
    if (EMBED_HAS_POSITIONS) {
      const uint columns_positions = packed_unit_columns(EMBED_FORMAT_POSITIONS);
      const PackedRow row = packed_row(positions_table, p.planes_positions, min(uint(positions[t]), p.rows_positions - 1));
      const PackedUnit at = packed_load(EMBED_FORMAT_POSITIONS, row, col / columns_positions);
      const Float8 add = packed_decode(EMBED_FORMAT_POSITIONS, at, packed_scales(EMBED_FORMAT_POSITIONS, at),
                                       col % columns_positions / 8);
      v.low += add.low;
      v.high += add.high;
    }
    device float* to = out + ulong(t) * p.cols + col;
    PACKED_UNROLL for (uint i = 0; i < 4; ++i) {
      if (col + i < p.cols) to[i] = v.low[i];
      if (col + 4 + i < p.cols) to[4 + i] = v.high[i];
    }
  }
}
