#pragma once

#include "backend/cpu/linear/call.h"

// Products whose rows are so wide that a tile of them takes most of a core's second-level cache (down of an 8B model has
// 14,336 columns). Where columns are in slices, as tensor parallelism wants them, panels meet all tiles a slice at a
// time: more panels find room beside a tile then, and tiles are read from farther away that much less often. What
// slices come to is added in the order of add_slice(), so the bits are the same.
namespace ingot::cpu {

// From so many bytes of a tile's records on, which is what products read of it.
inline constexpr size_t kWideTileBytes = size_t{96} << 10;
// Tiles that meet some panels one after another: sums of their slices wait meanwhile.
inline constexpr int64_t kSliceTiles = 32;

// Of a worker, for sums that wait. 0: rows are few, or not wide.
size_t by_slices_bytes(int64_t rows, int64_t cols);

bool goes_by_slices(const Call& call, const PackedMatrix::Impl& weight);

// sums: by_slices_bytes(), of this worker.
void multiply_by_slices(Call& call, const PackedMatrix::Impl& weight, const LinearArgs& args, StoreKind kind,
                        float* sums, Worker& worker);

}  // namespace ingot::cpu
