#include <algorithm>
#include <utility>

#include "backend/metal/linear/linear.h"

// Matrices as the device keeps them. One whose columns ranks could share (MatrixSpec::slices) is in cuts, each packed
// by itself and with an order of summation of its own, so that a rank which has some of them finds the same sums: (0 +
// 1) + (2 + 3). Cuts without columns are left out of that.
namespace ingot::metal {
namespace {

constexpr size_t kGranule = 16;  // staging buffers are cut where copies can be

struct Cut {
  MatrixSpec spec;
  LinearCut place;
  bool left = true;  // of the first sum
};

size_t whole_bytes(const MatrixSpec& spec) {
  const std::vector<Segment> segments = packed_segments(spec);
  return segments.back().offset + segments.back().bytes(spec.cols);
}

// Nothing where the columns make up one cut.
std::vector<Cut> cuts_of(const MatrixSpec& spec) {
  std::vector<Cut> cuts;
  int64_t begin = 0;
  size_t offset = 0;
  for (size_t i = 0; i < spec.slices.size(); ++i) {
    const int64_t end = spec.slices[i];
    if (end > begin) {
      Cut cut{spec, {.first_col = begin, .cols = end - begin, .offset = offset}, i < 2};
      cut.spec.cols = end - begin;
      cut.spec.slices.clear();
      for (MatrixPart& part : cut.spec.parts) part.first_col = std::max<int64_t>(part.first_col, 0) + begin;
      offset += (whole_bytes(cut.spec) + kGranule - 1) / kGranule * kGranule;
      cuts.push_back(std::move(cut));
    }
    begin = end;
  }
  if (cuts.size() < 2) cuts.clear();
  return cuts;
}

size_t bytes_of(const std::vector<Cut>& cuts) { return cuts.back().place.offset + whole_bytes(cuts.back().spec); }

}  // namespace

size_t packed_bytes(const MatrixSpec& spec) {
  const std::vector<Cut> cuts = cuts_of(spec);
  return cuts.empty() ? whole_bytes(spec) : bytes_of(cuts);
}

PackedMatrix pack_matrix(const MatrixSpec& spec, Memory& memory, const DropPages& drop, ThreadPool& pool) {
  const std::vector<Cut> cuts = cuts_of(spec);
  PackedMatrix matrix;
  matrix.name = spec.name;
  matrix.rows = spec.rows;
  matrix.cols = spec.cols;
  std::vector<Packer> packers;
  if (cuts.empty()) packers.emplace_back(spec, drop, &pool);
  for (const Cut& cut : cuts) {
    // The pages of the tensors are read once more for every cut.
    packers.emplace_back(cut.spec, &cut == &cuts.back() ? drop : DropPages(), &pool);
    matrix.cuts.push_back(cut.place);
    if (cut.left) ++matrix.left;
  }
  // Where the first sum has no part the second one stands for it.
  if (!cuts.empty() && matrix.left == 0) matrix.left = static_cast<int>(cuts.size());
  matrix.segments = packers[0].segments();
  matrix.bytes = cuts.empty() ? packers[0].bytes() : bytes_of(cuts);
  const auto fill = [&](size_t offset, std::span<std::byte> chunk) {
    for (size_t i = 0; i < packers.size(); ++i) {
      const size_t first = cuts.empty() ? 0 : cuts[i].place.offset, last = first + packers[i].bytes();
      const size_t begin = std::max(first, offset), end = std::min(last, offset + chunk.size());
      if (begin < end) packers[i].fill(begin - first, chunk.subspan(begin - offset, end - begin));
    }
  };
  matrix.data = memory.upload(matrix.bytes, "weight " + spec.name, kGranule, fill);
  return matrix;
}

}  // namespace ingot::metal
