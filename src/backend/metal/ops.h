#pragma once

#include "backend/metal/context.h"
#include "backend/op.h"

// The operations of this device. Each encodes its dispatches: one, unless it says otherwise.
namespace ingot::metal {

void encode(const PrepareOp& op, Context& context);  // one a layer, and one
void encode(const EmbedOp& op, Context& context);    // one for each format of the table
void encode(const ReadRowsOp& op, Context& context);
void encode(const RopeTableOp& op, Context& context);
void encode(const NormOp& op, Context& context);
// Whether the operation adds the slices that the one before has left; nobody else may find them.
bool adds_slices(const NormOp& op, const Context& context);
template <typename Op>
bool adds_slices(const Op&, const Context&) {
  return false;
}
void encode(const LinearOp& op, Context& context);  // products: one for each format of the weight, or as linear/ says
void encode(const AttentionOp& op, Context& context);  // up to two; more of a long prefill
void encode(const RouteOp& op, Context& context);      // two for many rows
void encode(const ExpertLinearOp& op, Context& context);
void encode(const ExpertSumOp& op, Context& context);
void encode(const GatherRowsOp& op, Context& context);
void encode(const SampleOp& op, Context& context);  // three or four
void encode(const PoolOp& op, Context& context);
void encode(const TakeStatesOp& op, Context& context);
void encode(const GiveStatesOp& op, Context& context);
void encode(const SumRanksOp& op, Context& context);     // two, or three of four ranks
void encode(const GatherRanksOp& op, Context& context);  // one a rank on rank 0
void encode(const ShareTokensOp& op, Context& context);
void encode(const SendRowsOp& op, Context& context);
void encode(const ReceiveRowsOp& op, Context& context);
void encode(const SendOutputOp& op, Context& context);  // none

}  // namespace ingot::metal
