#include "backend/cpu/profile.h"

#include <algorithm>

namespace ingot::cpu {
namespace {

struct Work {
  std::string name;
  double operations = 0;
  Arithmetic arithmetic = Arithmetic::none;
};

struct Describe {
  const Inventory& has;
  const StepView& step;
  bool bf16;

  Arithmetic arithmetic(const WeightSize& weight) const {
    const double bits = 8.0 * static_cast<double>(weight.bytes) / static_cast<double>(weight.rows * weight.cols);
    return bits < 12 ? Arithmetic::int8 : bits < 24 && bf16 ? Arithmetic::bf16 : Arithmetic::f32;
  }
  Work product(const char* role, double rows, double outputs, const WeightSize& weight) const {
    return {std::string(role) + " linear", 2 * rows * outputs * static_cast<double>(weight.cols), arithmetic(weight)};
  }

  Work operator()(const LinearOp& op) const {
    const WeightSize& weight = has.weight(op.weight);
    return product(op.role, static_cast<double>(op.rows) * (op.up ? 2 : 1), static_cast<double>(weight.rows), weight);
  }
  Work operator()(const ExpertLinearOp& op) const {
    const WeightSize& weight = has.weight(op.weight);
    return product(op.role, static_cast<double>(op.route.pairs()) * (op.up ? 2 : 1),
                   static_cast<double>(weight.rows / op.route.here()), weight);
  }
  Work operator()(const AttentionOp& op) const {
    if (op.part == AttentionOp::Part::prefill_write) return {"prefill write"};
    const bool decodes = op.part == AttentionOp::Part::decode;
    const int32_t begin = decodes ? 0 : step.step().decode_rows,
                  end = decodes ? step.step().decode_rows : step.step().tokens;
    double keys = 0;
    for (int32_t t = begin; t < end; ++t) {
      const int64_t seen = step.positions()[t] + int64_t{1};
      keys += static_cast<double>(op.shape.window > 0 ? std::min(seen, op.shape.window) : seen);
    }
    return {decodes ? "decode attention" : "prefill attention", 4 * keys * static_cast<double>(op.shape.out_width()),
            Arithmetic::f32};
  }
  Work operator()(const PrepareOp&) const { return {"prepare"}; }
  Work operator()(const EmbedOp&) const { return {"embed"}; }
  Work operator()(const ReadRowsOp&) const { return {"read rows"}; }
  Work operator()(const RopeTableOp&) const { return {"rope table"}; }
  Work operator()(const NormOp&) const { return {"norm"}; }
  Work operator()(const RouteOp&) const { return {"route"}; }
  Work operator()(const ExpertSumOp&) const { return {"expert sum"}; }
  Work operator()(const GatherRowsOp&) const { return {"gather rows"}; }
  Work operator()(const SampleOp&) const { return {"sample"}; }
  Work operator()(const PoolOp&) const { return {"pool"}; }
  Work operator()(const TakeStatesOp&) const { return {"take states"}; }
  Work operator()(const GiveStatesOp&) const { return {"give states"}; }
  Work operator()(const SumRanksOp&) const { return {"sum ranks"}; }
  Work operator()(const GatherRanksOp&) const { return {"gather ranks"}; }
  Work operator()(const ShareTokensOp&) const { return {"share tokens"}; }
  Work operator()(const SendRowsOp&) const { return {"send rows"}; }
  Work operator()(const ReceiveRowsOp&) const { return {"receive rows"}; }
  Work operator()(const SendOutputOp&) const { return {"send output"}; }
};

}  // namespace

TimedOp timed_op(const Op& op, const Inventory& has, const StepView& step, uint64_t bytes, bool bf16) {
  const Work work = std::visit(Describe{has, step, bf16}, op);
  return {work.name, {.dispatches = 1, .bytes = bytes, .operations = work.operations, .arithmetic = work.arithmetic}};
}

}  // namespace ingot::cpu
