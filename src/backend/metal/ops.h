#pragma once

#include "backend/metal/context.h"
#include "backend/op.h"

// The operations of this device. Each encodes its dispatches: one, unless it says otherwise.
namespace ingot::metal {

void encode(const PrepareOp& op, Context& context);  // one a layer, and one
void encode(const EmbedOp& op, Context& context);    // one for each format of the table
void encode(const RopeTableOp& op, Context& context);
void encode(const NormOp& op, Context& context);
void encode(const LinearOp& op, Context& context);  // products: one for each format of the weight, or as linear/ says
void encode(const AttentionOp& op, Context& context);  // up to two; more of a long prefill
void encode(const RouteOp& op, Context& context);      // two for many rows
void encode(const ExpertLinearOp& op, Context& context);
void encode(const ExpertSumOp& op, Context& context);
void encode(const GatherRowsOp& op, Context& context);
void encode(const SampleOp& op, Context& context);  // three or four
void encode(const PoolOp& op, Context& context);
// A model that several ranks share is declined (ModelLimits::groups).
inline void encode(const SumRanksOp&, Context&) {}
inline void encode(const GatherRanksOp&, Context&) {}
inline void encode(const ShareTokensOp&, Context&) {}

}  // namespace ingot::metal
