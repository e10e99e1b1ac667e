#include "backend/metal/linear/linear.h"

#include <algorithm>

#include "backend/metal/family.h"
#include "backend/metal/linear/gemm.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

// Staging buffers are cut where copies can be.
constexpr size_t kGranule = 16;

BufferView part_view(const Matrix& matrix, const PackedPart& part) {
  return {matrix.data.get(), part.offset, part.bytes(matrix.cols)};
}

// From element `first` on.
BufferView from(BufferView view, int64_t first, DType type) {
  const size_t skip = static_cast<size_t>(first) * dtype_bytes(type, 1);
  return {view.buffer, view.offset + skip, view.bytes - skip};
}

// `up` is set for a gated product, of a part of the same rows.
struct Operands {
  const Matrix* weight;
  const PackedPart* part;
  const Matrix* up = nullptr;
  const PackedPart* up_part = nullptr;
  BufferView in, bias, bias_up, out;
  BufferView items, starts, order;  // of experts
};

void encode(Context& context, LinearShape shape, const Operands& operands) {
  shape.format = operands.part->format;
  shape.cols = operands.weight->cols;
  if (shape.experts == 0) {
    shape.outputs = operands.part->rows;
    shape.out_stride = operands.weight->rows;
  }
  shape.in = context.activation;
  shape.threadgroup_bytes = static_cast<int64_t>(context.threadgroup_bytes);
  shape.bias = static_cast<bool>(operands.bias);
  shape.bias_up = static_cast<bool>(operands.bias_up);
  if (operands.up_part != nullptr) shape.format_up = operands.up_part->format;
  BufferView in = operands.in, out = from(operands.out, operands.part->first, shape.out);
  const int64_t few = few_rows(shape);
  if (few < shape.rows && operands.part->first % 8 == 0 && context.gemm->takes(shape)) {
    GemmOperands gemm{.weight = part_view(*operands.weight, *operands.part), .in = in, .out = out};
    if (operands.up != nullptr) gemm.up = part_view(*operands.up, *operands.up_part);
    if (operands.bias) gemm.bias = from(operands.bias, operands.part->first, DType::f32);
    if (operands.bias_up) gemm.bias_up = from(operands.bias_up, operands.part->first, DType::f32);
    context.gemm->encode(context, shape, gemm);
    if (few == 0) return;
    shape.rows = shape.decode_rows = few;
    in.bytes = static_cast<size_t>(few * shape.cols) * dtype_bytes(shape.in, 1);
    out.bytes = static_cast<size_t>((few - 1) * shape.out_stride + shape.outputs) * dtype_bytes(shape.out, 1);
  }
  const LinearPlan plan = plan_linear(shape, linear_variant(shape, context.family));
  const auto& c = plan.constants;
  const auto u = [&](size_t i) { return Constant::u(static_cast<uint16_t>(kLinearFirstConstant + i), c[i]); };
  const auto b = [&](size_t i) { return Constant::b(static_cast<uint16_t>(kLinearFirstConstant + i), c[i] != 0); };

  Encoder& encoder = context.encoder;
  const auto use = [&](const char* kernel) {
    encoder.use(kernel, {u(0), u(1), u(2), u(3), u(4), u(5), u(6), u(7), u(8), u(9), u(10), b(11), b(12), b(13), b(14),
                         b(15), b(16)});
  };
  use(plan.kernel);
  const int64_t first = operands.part->first;
  encoder.weight(0, part_view(*operands.weight, *operands.part));
  if (operands.up != nullptr) encoder.weight(1, part_view(*operands.up, *operands.up_part));
  encoder.read(2, in);
  if (operands.bias) encoder.weight(3, from(operands.bias, first, DType::f32));
  if (operands.bias_up) encoder.weight(4, from(operands.bias_up, first, DType::f32));
  const auto write_out = [&] {
    if (shape.accumulate)
      encoder.update(5, out);
    else
      encoder.write(5, out);
  };
  BufferView partials;
  if (plan.partial_bytes > 0) {
    if (!context.partials || context.partials->length() < plan.partial_bytes)
      context.partials = context.memory.new_private(plan.partial_bytes, "partial sums");
    partials = {context.partials.get(), 0, plan.partial_bytes};
    encoder.write(10, partials);
  }
  write_out();
  encoder.value(6, plan.params);
  if (shape.experts > 0) {
    encoder.read(7, operands.items);
    encoder.read(8, operands.starts);
    encoder.read(9, operands.order);
  }
  encoder.threadgroup_memory(0, plan.threadgroup_bytes);
  encoder.dispatch(MTL::Size(plan.groups, 1, 1), MTL::Size(plan.threads, 1, 1));
  if (plan.add_groups == 0) return;

  use("linear_add");
  if (operands.bias) encoder.weight(3, from(operands.bias, first, DType::f32));
  write_out();
  encoder.value(6, plan.params);
  encoder.read(10, partials);
  encoder.dispatch(MTL::Size(plan.add_groups, plan.add_row_groups, 1), MTL::Size(256, 1, 1));
}

// The EmbedParams of the kernel, field for field.
struct EmbedParams {
  PackedPlanes planes, planes_positions;
  uint32_t cols, first, rows, rows_positions;
  float scale;
};
constexpr uint16_t kEmbedFirstConstant = 40;
constexpr uint32_t kEmbedThreads = 64;

}  // namespace

size_t packed_bytes(const MatrixSpec& spec) {
  const std::vector<PackedPart> parts = packed_parts(spec);
  return parts.back().offset + parts.back().bytes(spec.cols);
}

Matrix pack_matrix(const MatrixSpec& spec, Memory& memory,
                   const std::function<void(std::span<const std::byte>)>& drop_pages, ThreadPool& pool) {
  Packer packer(spec, drop_pages, &pool);
  Matrix matrix;
  matrix.name = spec.name;
  matrix.rows = spec.rows;
  matrix.cols = spec.cols;
  matrix.parts = packer.parts();
  matrix.format = matrix.parts.front().format;
  matrix.bytes = packer.bytes();
  matrix.data = memory.upload(matrix.bytes, "weight " + spec.name, kGranule,
                              [&](size_t offset, std::span<std::byte> chunk) { packer.fill(offset, chunk); });
  return matrix;
}

void linear(Context& context, const LinearArgs& args) {
  LinearShape shape;
  shape.rows = args.rows;
  shape.decode_rows = args.decode_rows;
  shape.out = args.accumulate || args.f32_out ? DType::f32 : context.activation;
  shape.accumulate = args.accumulate;
  shape.plain_activation = args.activation;
  for (const PackedPart& part : args.weight->parts) {
    Operands operands{.weight = args.weight, .part = &part};
    operands.in = args.in;
    operands.bias = args.bias;
    operands.out = args.out;
    encode(context, shape, operands);
  }
}

void gated_linear(Context& context, const GatedLinearArgs& args) {
  const auto& gate = args.gate->parts;
  const auto& up = args.up->parts;
  const bool alike = std::equal(gate.begin(), gate.end(), up.begin(), up.end(),
                                [](const PackedPart& a, const PackedPart& b) { return a.rows == b.rows; });
  if (!alike)
    throw_error(ErrorKind::declined, "{} and {} change their format at different rows; store each in one format",
                args.gate->name, args.up->name);
  LinearShape shape;
  shape.activation = args.activation;
  shape.rows = args.rows;
  shape.decode_rows = args.decode_rows;
  shape.out = context.activation;
  for (size_t i = 0; i < gate.size(); ++i) {
    Operands operands{.weight = args.gate, .part = &gate[i], .up = args.up, .up_part = &up[i]};
    operands.in = args.in;
    operands.bias = args.gate_bias;
    operands.bias_up = args.up_bias;
    operands.out = args.out;
    encode(context, shape, operands);
  }
}

int64_t expert_item_rows(const ExpertRoute& route, int family) {
  int64_t rows = 1;
  while (rows < route.rows) rows *= 2;
  const int64_t share = rows * route.per_token / route.experts;  // of an expert, when all are chosen alike
  if (family == kNvidiaFamily) return share <= 8 ? 8 : 16;       // the matrix unit takes eight at once
  return share <= 2 ? std::min<int64_t>(rows, 4) : share <= 4 ? 8 : 16;
}

void expert_linear(Context& context, const ExpertLinearArgs& args) {
  const ExpertRoute& route = args.route;
  LinearShape shape;
  shape.rows = route.pairs();
  shape.experts = route.experts;
  shape.item_rows = expert_item_rows(route, context.family);
  shape.items = std::min(route.pairs(), std::min(route.experts, route.pairs()) + route.pairs() / shape.item_rows);
  shape.per_token = args.look_up ? route.per_token : 0;
  shape.outputs = shape.out_stride = args.weight->rows / route.experts;
  if (args.up != nullptr) shape.activation = args.activation;
  shape.out = args.up != nullptr ? context.activation : DType::f32;

  // One part each: check_matrix() takes experts of one format only.
  Operands operands{.weight = args.weight, .part = &args.weight->parts[0]};
  if (args.up != nullptr) {
    operands.up = args.up;
    operands.up_part = &args.up->parts[0];
  }
  operands.in = args.in;
  operands.out = args.out;
  const size_t pairs = static_cast<size_t>(route.pairs());
  operands.items = context.region(route.items, (2 * pairs + 1) * 4);
  operands.starts = context.region(route.starts, static_cast<size_t>(route.experts + 1) * 4);
  operands.order = context.region(route.order, pairs * 4);
  encode(context, shape, operands);
}

void embed(Context& context, const EmbedArgs& args) {
  const Matrix* positions = args.positions_table;
  if (positions != nullptr && positions->parts.size() != 1)
    throw_error(ErrorKind::declined, "{} has several formats; store it in one", positions->name);
  Encoder& encoder = context.encoder;
  for (const PackedPart& part : args.table->parts) {
    EmbedParams p{};
    p.planes = packed_planes(part.format, args.table->cols);
    p.cols = static_cast<uint32_t>(args.table->cols);
    p.first = static_cast<uint32_t>(part.first);
    p.rows = static_cast<uint32_t>(part.rows);
    p.scale = args.scale;
    if (positions != nullptr) {
      p.planes_positions = packed_planes(positions->format, positions->cols);
      p.rows_positions = static_cast<uint32_t>(positions->rows);
    }
    const DType positions_format = positions != nullptr ? positions->format : DType::f32;
    encoder.use("embed", {Constant::u(kEmbedFirstConstant, static_cast<int64_t>(part.format)),
                          Constant::u(kEmbedFirstConstant + 1, static_cast<int64_t>(positions_format)),
                          Constant::b(kEmbedFirstConstant + 2, positions != nullptr)});
    encoder.weight(0, part_view(*args.table, part));
    if (positions != nullptr) {
      encoder.weight(1, part_view(*positions, positions->parts[0]));
      encoder.read(3, args.positions);
    }
    encoder.read(2, args.token_ids);
    encoder.read(4, args.previous);
    encoder.write(5, args.out);
    encoder.value(6, p);
    const int64_t columns = packed_unit_columns(part.format);
    const int64_t units = (args.table->cols + columns - 1) / columns;
    encoder.dispatch(MTL::Size(static_cast<NS::UInteger>((units + kEmbedThreads - 1) / kEmbedThreads),
                               static_cast<NS::UInteger>(args.rows), 1),
                     MTL::Size(kEmbedThreads, 1, 1));
  }
}

}  // namespace ingot::metal
