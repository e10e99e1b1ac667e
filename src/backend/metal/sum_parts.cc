#include "backend/metal/sum_parts.h"

#include "backend/metal/context.h"

namespace ingot::metal {
namespace {

constexpr uint32_t kSumThreads = 256;

}  // namespace

void encode_sum(Context& context, const SumParts& sum) {
  if (sum.count == 0) return;
  Encoder& encoder = context.encoder;
  encoder.use("add_parts");
  encoder.read(0, sum.first);
  encoder.read(1, sum.rest ? sum.rest : sum.first);
  encoder.weight(2, sum.bias ? sum.bias : sum.first);  // bound, never touched
  encoder.update(3, sum.out);
  encoder.value(4, AddPartsParams{.count = static_cast<uint32_t>(sum.count),
                                  .stride = static_cast<uint32_t>(sum.stride),
                                  .left = static_cast<uint32_t>(sum.left),
                                  .right = static_cast<uint32_t>(sum.right),
                                  .dim = static_cast<uint32_t>(sum.dim),
                                  .bias = static_cast<bool>(sum.bias),
                                  .accumulate = sum.accumulate});
  encoder.dispatch({groups_of(sum.count, kSumThreads), 1, 1}, {kSumThreads, 1, 1});
}

}  // namespace ingot::metal
