#include "engine/step_builder.h"

#include <algorithm>
#include <utility>

namespace ingot {

void StepBuilder::clear() {
  step_ = Step{};
  tables_.clear();
}

int32_t StepBuilder::add(std::span<const int32_t> ids, int64_t start, std::span<const int32_t> blocks) {
  const int32_t first = rows();
  if (step_.query_start_loc.empty()) step_.query_start_loc.push_back(0);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t position = start + static_cast<int64_t>(i);
    step_.token_ids.push_back(ids[i]);
    step_.positions.push_back(static_cast<int32_t>(position));
    step_.slot_mapping.push_back(blocks[position / block_size_] * block_size_ + position % block_size_);
  }
  step_.query_start_loc.push_back(rows());
  step_.seq_lens.push_back(static_cast<int32_t>(start + static_cast<int64_t>(ids.size())));
  tables_.emplace_back(blocks.begin(), blocks.end());
  return first;
}

void StepBuilder::sample(int32_t row, SamplingParams params, int32_t slot, RowOutput output) {
  step_.sample_rows.push_back(row);
  step_.sampling.push_back(std::move(params));
  step_.sampler_slot.push_back(slot);
  step_.output.push_back(output);
}

const Step& StepBuilder::finish() {
  const size_t seqs = step_.seq_lens.size();
  step_.num_scheduled_tokens = rows();
  step_.num_seqs_active = static_cast<int32_t>(seqs);
  step_.max_query_len = 0;
  step_.max_seq_len = 0;
  step_.max_blocks = 1;
  step_.num_decode_tokens = 0;
  bool decoding = true;
  for (size_t s = 0; s < seqs; ++s) {
    const int32_t query = step_.query_start_loc[s + 1] - step_.query_start_loc[s];
    decoding = decoding && query == 1;
    if (decoding) ++step_.num_decode_tokens;
    step_.max_query_len = std::max(step_.max_query_len, query);
    step_.max_seq_len = std::max(step_.max_seq_len, step_.seq_lens[s]);
    step_.max_blocks = std::max(step_.max_blocks, static_cast<int32_t>(tables_[s].size()));
  }
  step_.kind = step_.num_decode_tokens == static_cast<int32_t>(seqs) ? StepKind::decode
               : step_.num_decode_tokens == 0                        ? StepKind::prefill
                                                                     : StepKind::mixed;
  step_.block_table.assign(seqs * static_cast<size_t>(step_.max_blocks), -1);
  for (size_t s = 0; s < seqs; ++s)
    std::copy(tables_[s].begin(), tables_[s].end(),
              step_.block_table.begin() + static_cast<int64_t>(s) * step_.max_blocks);
  return step_;
}

}  // namespace ingot
