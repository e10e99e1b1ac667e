#include <algorithm>

#include "backend/metal/ops.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr uint32_t kEmbedThreads = 64;

}  // namespace

void encode(const EmbedOp& op, Context& context) {
  const PackedMatrix& table = context.matrix(op.table);
  const PackedMatrix* positions = op.position_table ? &context.matrix(op.position_table) : nullptr;
  if (positions != nullptr && positions->segments.size() != 1)
    throw_error(ErrorKind::declined, "{} has several formats; store it in one", positions->name);
  const StagedStep& step = context.step;
  const auto rows = static_cast<NS::UInteger>(step.tokens);
  Encoder& encoder = context.encoder;
  const int64_t here = std::max<int64_t>(op.first, 0);
  for (const Segment& segment : table.segments) {
    EmbedParams params{.planes = packed_planes(segment.type, table.cols),
                       .planes_positions = {},
                       .cols = static_cast<uint32_t>(table.cols),
                       .first = static_cast<uint32_t>(here + segment.first_row),
                       .rows = static_cast<uint32_t>(segment.rows),
                       .rows_positions = 0,
                       .scale = op.scale,
                       .here = static_cast<uint32_t>(here),
                       .rows_here = static_cast<uint32_t>(table.rows),
                       .zeros = op.first >= 0 && segment.first_row == 0};
    DType positions_type = DType::f32;
    if (positions != nullptr) {
      positions_type = positions->segments[0].type;
      params.planes_positions = packed_planes(positions_type, positions->cols);
      params.rows_positions = static_cast<uint32_t>(positions->rows);
    }
    encoder.use("embed", {Constant::u(kEmbedFormat, packed_format(segment.type)),
                          Constant::u(kEmbedFormatPositions, packed_format(positions_type)),
                          Constant::b(kEmbedHasPositions, positions != nullptr)});
    encoder.weight(0, table.view(segment));
    if (positions != nullptr) {
      encoder.weight(1, positions->view(positions->segments[0]));
      encoder.read(3, context.staged(step.positions));
    }
    encoder.read(2, context.staged(step.token_ids));
    // Without a sampler no token id is negative: anything serves as the tokens that the step before sampled.
    encoder.read(4,
                 context.sampler ? context.sampler->previous_tokens(context.number) : context.staged(step.token_ids));
    encoder.write(5, context.words(op.out, step.tokens * table.cols));
    encoder.value(6, params);
    const int64_t units = ceil_div(table.cols, packed_unit_columns(segment.type));
    encoder.dispatch({groups_of(units, kEmbedThreads), rows, 1}, {kEmbedThreads, 1, 1});
  }
}

}  // namespace ingot::metal
