#include <nanobind/stl/string.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ingot/step_builder.h"
#include "module.h"

// The arrays of a step, gathered from those that an orchestrator keeps with a line a request: one call instead of a
// chain of NumPy's, each of which costs more than the work it does for a batch of a few tokens.
namespace ingot::python {
namespace {

using MutableArray = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableMatrix = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

struct Kept {
  Matrix<int32_t> tokens, table;  // [lines][positions], [lines][blocks]
  Array<int32_t> known, drawn;    // [lines]: tokens known; output row in the step before, -1: none
};

// [S] each: line, rows in this step, positions before it.
struct Scheduled {
  Array<int32_t> lines, counts, computed;
};

void check(const Kept& kept, const Scheduled& scheduled, int64_t block_size) {
  const size_t count = scheduled.lines.size(), lines = kept.tokens.shape(0);
  if (scheduled.counts.size() != count || scheduled.computed.size() != count || kept.table.shape(0) != lines ||
      kept.known.size() != lines || kept.drawn.size() != lines || block_size < 1)
    throw_error(ErrorKind::bad_call, "Step.gather: the arrays do not have one length");
  for (size_t s = 0; s < count; ++s) {
    const int64_t line = scheduled.lines.data()[s], rows = scheduled.counts.data()[s];
    const int64_t start = scheduled.computed.data()[s], end = start + rows;
    if (line < 0 || line >= static_cast<int64_t>(lines) || rows < 1 || start < 0 ||
        end > static_cast<int64_t>(kept.tokens.shape(1)) ||
        (end + block_size - 1) / block_size > static_cast<int64_t>(kept.table.shape(1)))
      throw_error(ErrorKind::bad_call, "Step.gather: sequence {} (line {}, {} rows from {}) is outside of the arrays",
                  s, line, rows, start);
    const int64_t known = kept.known.data()[line];
    if (end > known && (end != known + 1 || kept.drawn.data()[line] < 0))
      throw_error(ErrorKind::bad_call,
                  "Step.gather: sequence {} needs a token that no step has drawn: the step before failed", s);
  }
}

// The known tokens of a sequence's rows, and the one that the step before draws. `next` keeps that one alive.
std::span<const int32_t> row_tokens(const Kept& kept, int64_t line, int64_t start, int64_t rows,
                                    std::vector<int32_t>& next) {
  const int32_t* tokens = kept.tokens.data() + line * static_cast<int64_t>(kept.tokens.shape(1)) + start;
  if (start + rows <= kept.known.data()[line]) return {tokens, static_cast<size_t>(rows)};
  next.assign(tokens, tokens + rows - 1);
  next.push_back(-1 - kept.drawn.data()[line]);
  return next;
}

// Fills in all but the samples. Returns [R] arrays of the sequences that reach their last known token, and so draw the
// next: which of the S, their last row, and the position of the token.
nb::tuple gather(Step& step, const Matrix<int32_t>& tokens, const Matrix<int32_t>& table, const Array<int32_t>& known,
                 const Array<int32_t>& drawn, const Array<int32_t>& lines, const Array<int32_t>& counts,
                 const Array<int32_t>& computed, int64_t block_size) {
  const Kept kept{tokens, table, known, drawn};
  check(kept, {lines, counts, computed}, block_size);
  StepBuilder builder(block_size);
  std::vector<int32_t> sampled, rows, positions, next;
  for (size_t s = 0; s < lines.size(); ++s) {
    const int64_t line = lines.data()[s], start = computed.data()[s], end = start + counts.data()[s];
    const std::span blocks(table.data() + line * static_cast<int64_t>(table.shape(1)), table.shape(1));
    builder.add(row_tokens(kept, line, start, counts.data()[s], next), start, blocks);
    if (end >= known.data()[line]) {
      sampled.push_back(static_cast<int32_t>(s));
      rows.push_back(builder.rows() - 1);
      positions.push_back(static_cast<int32_t>(end));
    }
  }
  builder.finish();
  step = std::move(builder.step());
  return nb::make_tuple(to_numpy(sampled), to_numpy(rows), to_numpy(positions));
}

// What a step drew, into the same arrays, for requests that still hold the line they had when it was built.
void keep(MutableMatrix tokens, MutableArray known, const Array<int64_t>& owner, const Array<int32_t>& lines,
          const Array<int64_t>& owners, const Array<int32_t>& positions, const Array<int32_t>& drawn) {
  const size_t count = lines.size(), height = tokens.shape(0), width = tokens.shape(1);
  if (owners.size() != count || positions.size() != count || drawn.size() != count || known.size() != height ||
      owner.size() != height)
    throw_error(ErrorKind::bad_call, "keep: the arrays do not have one length");
  for (size_t r = 0; r < count; ++r) {
    const auto line = static_cast<size_t>(lines.data()[r]), position = static_cast<size_t>(positions.data()[r]);
    if (line >= height || position >= width)
      throw_error(ErrorKind::bad_call, "keep: line {}, position {} is outside of the arrays", line, position);
    if (owner.data()[line] != owners.data()[r]) continue;
    tokens.data()[line * width + position] = drawn.data()[r];
    known.data()[line] = std::max(known.data()[line], static_cast<int32_t>(position) + 1);
  }
}

}  // namespace

void bind_keep(nb::module_& m) {
  m.def("keep", &keep, nb::arg("tokens"), nb::arg("known"), nb::arg("owner"), nb::arg("lines"), nb::arg("owners"),
        nb::arg("positions"), nb::arg("drawn"),
        "Writes drawn tokens into the arrays of Step.gather(), where `owner` of a line is still the one in `owners`.");
}

void bind_gather(nb::class_<Step>& step) {
  step.def("gather", &gather, nb::arg("tokens"), nb::arg("table"), nb::arg("known"), nb::arg("drawn"), nb::arg("lines"),
           nb::arg("counts"), nb::arg("computed"), nb::arg("block_size"),
           "Fills in rows and block table from arrays with a line a request: its tokens, its blocks, how many tokens "
           "are known, and the output row that drew the next in the step before (-1: none). Sequence s has counts[s] "
           "rows from position computed[s] of line lines[s]. Returns what draws a token: sequences, rows, positions.");
}

}  // namespace ingot::python
