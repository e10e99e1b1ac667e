#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/linear/format.h"

// What each ISA supplies to the matrix products: a table of plain functions, one table a translation unit. Those files
// are compiled with their own machine flags, so they must not instantiate any inline function of the standard library
// or of other headers: the linker could keep that copy for the whole program.
namespace ingot::cpu {

inline constexpr int kMaxTileRows = 8;    // of any ISA
inline constexpr int kMaxTilePanels = 8;  // consecutive panels of one call
inline constexpr int kMaxUnitPanels = 2;  // of those, worked on together
inline constexpr int kWaitingFloats = 2 * kMaxUnitPanels * kMaxTileRows * kPanelRows;

// Some panels against one tile of activation rows.
struct TileArgs {
  const uint8_t* panel;  // the first one
  size_t panel_bytes;    // from one to the next
  int panels;
  int slices;                 // of columns, 1, 2 or 4: each is summed by itself, then they are added by add_slice()
  const int64_t* slice_ends;  // [slices]: the column behind each
  const uint8_t* act;        // slice after slice; block formats: the tile's records (format.h); bf16: see round_to_bf16
  bool halves;               // the records have sums of halves
  const float* in;           // float formats: the tile's first row
  int64_t in_stride;         // in floats
  float* out;                // [panels][rows of the tile][16]
  float* waiting;            // room for add_slice(): kWaitingFloats
  bool from_memory = false;  // the panels: nobody has read them just before; kernels may read them in one stream then
};

// The results of some panels and a tile on their way to memory.
struct StoreArgs {
  const float* tile;       // [panels][rows][16]
  const float* gate_tile;  // [panels][rows][16], gated products only; without it an activation takes the tile itself
  const float* bias;       // [cols]; nullptr: none
  const float* gate_bias;
  int rows;
  int cols;    // of the output; the last panel may have fewer than 16
  float* out;  // [rows][cols]
  int64_t out_stride;
};

enum class StoreKind : uint8_t { set, add, silu, gelu_tanh, gelu };
inline constexpr int kNumStoreKinds = 5;

struct KernelTable {
  int max_tile;  // most rows of a tile

  // Writes the records of blocks [first, last) of a tile of `rows` rows of `cols` columns.
  void (*quantize)(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last, bool halves,
                   uint8_t* act);

  // Null, or bf16 products take activations rounded to bf16: writes blocks [first, last) of 32 columns of a tile, each
  // [rows][32] bf16, zero past the last column.
  void (*round_to_bf16)(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last,
                        uint8_t* act);

  // Indexed by DType, then rows - 1.
  void (*tile[kNumDTypes][kMaxTileRows])(const TileArgs&);

  // Null where it does not pay: takes a panel's codes apart (format.h), for tiles of max_tile rows or one less.
  void (*unpack[kNumDTypes])(const uint8_t* panel, int64_t blocks, uint8_t* out);
  void (*unpacked_tile[kNumDTypes][kMaxTileRows])(const TileArgs&);  // of panels that were
  void (*store[kNumStoreKinds])(const StoreArgs&);
};

const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* avx512_vnni_kernels();
const KernelTable* avx512_bf16_kernels();  // its bf16 kernels alone
const KernelTable* neon_kernels();
const KernelTable* neon_dotprod_kernels();
const KernelTable* neon_i8mm_kernels();

// The whole table of an ISA; null when this build does not have it.
const KernelTable* kernels_for(Isa isa);

}  // namespace ingot::cpu
