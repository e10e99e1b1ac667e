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
                              int64_t pooled_dim, int32_t states, int64_t state_width) {
  OutputLayout out;
  out.max_rows = rows;
  out.max_top = top;
  out.max_logits_rows = logits_rows;
  out.vocab = vocab;
  out.max_pooled = pooled;
  out.pooled_dim = pooled_dim;
  out.max_states = states;
  out.state_width = state_width;
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
  out.states = place(states * state_width);
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

namespace {

// What is sent, from and to: both ascend, and nothing moves up.
struct Move {
  size_t from = 0, to = 0, bytes = 0;
};
std::vector<Move> moves_of(const OutputLayout& layout, const OutputCounts& counts) {
  std::vector<Move> moves;
  size_t to = 0;
  for (const OutputLayout::Part& part : layout.written(counts.rows, counts.logits_rows, counts.vectors)) {
    if (!counts.top && (part.offset == layout.top_ids || part.offset == layout.top_values)) continue;
    moves.push_back({part.offset, to, part.bytes});
    to += part.bytes;
  }
  return moves;
}

}  // namespace

OutputCounts OutputCounts::of(std::span<const RowOutput> wanted, size_t vectors) {
  OutputCounts counts{.rows = wanted.size(), .vectors = vectors};
  for (const RowOutput& row : wanted) {
    if (row.kind == RowOutput::Kind::full_logits) ++counts.logits_rows;
    counts.top = counts.top || row.top > 0;
  }
  return counts;
}

OutputCounts OutputCounts::of(std::span<const StagedSampling> rows, size_t vectors) {
  OutputCounts counts{.rows = rows.size(), .vectors = vectors};
  for (const StagedSampling& row : rows) {
    if (row.logits_row >= 0) ++counts.logits_rows;
    counts.top = counts.top || row.top > 0;
  }
  return counts;
}

size_t OutputCounts::packed_bytes(const OutputLayout& layout) const {
  const Move last = moves_of(layout, *this).back();
  return last.to + last.bytes;
}

void pack_output(const OutputLayout& layout, const OutputCounts& counts, std::byte* memory) {
  for (const Move& move : moves_of(layout, counts)) std::memmove(memory + move.to, memory + move.from, move.bytes);
}

void unpack_output(const OutputLayout& layout, const OutputCounts& counts, std::byte* memory) {
  const std::vector<Move> moves = moves_of(layout, counts);
  for (auto move = moves.rbegin(); move != moves.rend(); ++move)
    std::memmove(memory + move->from, memory + move->to, move->bytes);
}

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

std::vector<float> read_states(const OutputLayout& layout, std::span<const std::byte> memory, size_t rows) {
  std::vector<float> states(rows * static_cast<size_t>(layout.state_width));
  if (!states.empty()) std::memcpy(states.data(), memory.data() + layout.states, states.size() * sizeof(float));
  return states;
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
