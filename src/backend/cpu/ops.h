#pragma once

#include "backend/cpu/context.h"
#include "backend/op.h"

// The operations of this device. Each is called by every worker of a job alike, and is complete on return.
namespace ingot::cpu {

void run(const PrepareOp& op, const Job& job);
void run(const EmbedOp& op, const Job& job);
void run(const ReadRowsOp& op, const Job& job);
void run(const RopeTableOp& op, const Job& job);
void run(const NormOp& op, const Job& job);
void run(const LinearOp& op, const Job& job);
void run(const AttentionOp& op, const Job& job);
void run(const RouteOp& op, const Job& job);
void run(const ExpertLinearOp& op, const Job& job);
void run(const ExpertSumOp& op, const Job& job);
void run(const GatherRowsOp& op, const Job& job);
void run(const SampleOp& op, const Job& job);
void run(const PoolOp& op, const Job& job);
void run(const TakeStatesOp& op, const Job& job);
void run(const GiveStatesOp& op, const Job& job);
void run(const SumRanksOp& op, const Job& job);
void run(const GatherRanksOp& op, const Job& job);
void run(const ShareTokensOp& op, const Job& job);
void run(const SendRowsOp& op, const Job& job);
void run(const ReceiveRowsOp& op, const Job& job);
void run(const SendOutputOp& op, const Job& job);

// Bytes of work memory that an operation needs: most need none.
template <typename AnyOp>
size_t work_bytes(const AnyOp&, const Context&, int) {
  return 0;
}
size_t work_bytes(const EmbedOp& op, const Context& device, int workers);
size_t work_bytes(const NormOp& op, const Context& device, int workers);
size_t work_bytes(const LinearOp& op, const Context& device, int workers);
size_t work_bytes(const ExpertLinearOp& op, const Context& device, int workers);
size_t work_bytes(const SumRanksOp& op, const Context& device, int workers);
size_t work_bytes(const GatherRanksOp& op, const Context& device, int workers);

}  // namespace ingot::cpu
