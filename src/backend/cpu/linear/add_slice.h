// Adds what columns cut into slices come to. Included inside an ISA's namespace; no include guard, no includes.

// Slice `slice` is in acc; adds it to its neighbours that are there already. After the last one acc is
// (0 + 1) + (2 + 3). waiting: a slice, and the sum of two, that wait for their neighbour; in memory, so that they take
// no registers from the loops.
template <int kUnits, int kRows>
INGOT_INLINE void add_slice(int slice, Vec (&acc)[kUnits][kRows], float* waiting) {
  constexpr int kFloats = kUnits * kRows * kLanes;
  for (int level = 0; level < 2; ++level, waiting += kFloats) {
    const bool last = (slice >> level & 1) == 0;
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
      float* at = waiting + (u * kRows + r) * kLanes;
      if (last) {
        store(at, acc[u][r]);
      } else {
        acc[u][r] = load(at) + acc[u][r];
      }
    }
    if (last) return;
  }
}
