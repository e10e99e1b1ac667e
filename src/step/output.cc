#include "step/output.h"

#include <cstring>

namespace ingot {
namespace {

constexpr size_t kLine = 64;  // arrays begin at cache lines

template <typename T>
T* array_at(std::byte* memory, size_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

}  // namespace

OutputLayout OutputLayout::of(int32_t rows, int32_t top, int32_t logits_rows, int64_t vocab, int32_t pooled,
                              int64_t pooled_dim) {
  OutputLayout out;
  out.max_rows = rows;
  out.max_top = top;
  out.max_logits_rows = logits_rows;
  out.vocab = vocab;
  out.max_pooled = pooled;
  out.pooled_dim = pooled_dim;
  const auto place = [&out](int64_t words) {
    const size_t offset = out.bytes;
    out.bytes += (static_cast<size_t>(words) * 4 + kLine - 1) / kLine * kLine;
    return offset;
  };
  out.tokens = place(rows);
  out.logprobs = place(rows);
  out.ranks = place(rows);
  out.top_ids = place(int64_t{rows} * top);
  out.top_values = place(int64_t{rows} * top);
  out.logits = place(logits_rows * vocab);
  out.pooled = place(pooled * pooled_dim);
  return out;
}

std::array<OutputLayout::Part, 7> OutputLayout::written(size_t rows, size_t logits_rows, size_t vectors) const {
  const size_t line = rows * 4, top = line * static_cast<size_t>(max_top);
  return {{{tokens, line},
           {logprobs, line},
           {ranks, line},
           {top_ids, top},
           {top_values, top},
           {logits, logits_rows * static_cast<size_t>(vocab) * 4},
           {pooled, vectors * static_cast<size_t>(pooled_dim) * 4}}};
}

OutputArrays::OutputArrays(const OutputLayout& layout, std::byte* memory)
    : tokens(array_at<int32_t>(memory, layout.tokens)),
      logprobs(array_at<float>(memory, layout.logprobs)),
      ranks(array_at<int32_t>(memory, layout.ranks)),
      top_ids(array_at<int32_t>(memory, layout.top_ids)),
      top_values(array_at<float>(memory, layout.top_values)),
      logits(array_at<float>(memory, layout.logits)) {}

std::vector<RowResult> read_rows(const OutputLayout& layout, std::span<const std::byte> memory,
                                 std::span<const RowOutput> wanted) {
  // Only read from; the arrays are the device's to write.
  const OutputArrays out(layout, const_cast<std::byte*>(memory.data()));
  const float* logits = out.logits;
  std::vector<RowResult> rows(wanted.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    RowResult& row = rows[r];
    if (wanted[r].kind == RowOutput::Kind::full_logits) {
      row.logits.assign(logits, logits + layout.vocab);
      logits += layout.vocab;
      continue;
    }
    row.token = out.tokens[r];
    if (wanted[r].kind == RowOutput::Kind::token) continue;
    row.logprob = out.logprobs[r];
    row.rank = out.ranks[r];
    for (size_t i = r * layout.max_top; i < r * layout.max_top + wanted[r].top; ++i)
      row.top.push_back({out.top_ids[i], out.top_values[i]});
  }
  return rows;
}

std::vector<std::vector<float>> read_pooled(const OutputLayout& layout, std::span<const std::byte> memory,
                                            size_t vectors) {
  std::vector<std::vector<float>> pooled(vectors, std::vector<float>(static_cast<size_t>(layout.pooled_dim)));
  const std::byte* from = memory.data() + layout.pooled;
  for (std::vector<float>& vector : pooled) {
    std::memcpy(vector.data(), from, vector.size() * sizeof(float));
    from += vector.size() * sizeof(float);
  }
  return pooled;
}

}  // namespace ingot
