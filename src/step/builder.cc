#include <algorithm>
#include <utility>

#include "ingot/step_builder.h"

namespace ingot {

void StepBuilder::clear() {
  step_ = Step{};
  blocks_.clear();
  num_blocks_.clear();
  masks_.clear();
}

int32_t StepBuilder::add(std::span<const int32_t> ids, int64_t start, std::span<const int32_t> blocks) {
  const int32_t first = rows();
  const int64_t end = start + static_cast<int64_t>(ids.size());
  if (step_.query_start_loc.empty()) step_.query_start_loc.push_back(0);
  step_.token_ids.insert(step_.token_ids.end(), ids.begin(), ids.end());
  for (int64_t position = start; position < end; ++position) {
    step_.positions.push_back(static_cast<int32_t>(position));
    step_.slot_mapping.push_back(blocks[position / block_size_] * block_size_ + position % block_size_);
  }
  step_.query_start_loc.push_back(rows());
  step_.seq_lens.push_back(static_cast<int32_t>(end));
  num_blocks_.push_back(static_cast<int32_t>((end + block_size_ - 1) / block_size_));
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.begin() + num_blocks_.back());
  return first;
}

void StepBuilder::sample(int32_t row, SamplingParams params, int32_t slot, RowOutput output,
                         std::span<const uint32_t> mask) {
  step_.sample_rows.push_back(row);
  step_.sampling.push_back(std::move(params));
  step_.sampler_slot.push_back(slot);
  step_.output.push_back(output);
  masks_.push_back(mask);
}

const Step& StepBuilder::finish() {
  if (step_.query_start_loc.empty()) step_.query_start_loc.push_back(0);  // no rows: blocks move, and that is all
  const size_t seqs = num_blocks_.size();
  size_t decoding = 0;
  while (decoding < seqs && step_.query_start_loc[decoding + 1] == static_cast<int32_t>(decoding) + 1) ++decoding;
  set_totals(step_, static_cast<int32_t>(decoding));
  step_.max_blocks = 1;
  for (const int32_t count : num_blocks_) step_.max_blocks = std::max(step_.max_blocks, count);
  step_.block_table.assign(seqs * static_cast<size_t>(step_.max_blocks), -1);
  auto from = blocks_.begin();
  auto line = step_.block_table.begin();
  for (const int32_t count : num_blocks_) {
    std::copy_n(from, count, line);
    from += count;
    line += step_.max_blocks;
  }
  size_t words = 0;
  for (const auto& mask : masks_) words = std::max(words, mask.size());
  if (words > 0) step_.grammar_mask.assign(words * masks_.size(), ~0u);
  for (size_t row = 0; row < masks_.size(); ++row)
    std::ranges::copy(masks_[row], step_.grammar_mask.begin() + static_cast<int64_t>(row * words));
  return step_;
}

void set_totals(Step& step, int32_t num_decode) {
  step.num_scheduled_tokens = static_cast<int32_t>(step.token_ids.size());
  step.num_seqs_active = static_cast<int32_t>(step.seq_lens.size());
  step.num_decode_tokens = num_decode;
  step.max_query_len = 0;
  for (size_t s = 0; s + 1 < step.query_start_loc.size(); ++s)
    step.max_query_len = std::max(step.max_query_len, step.query_start_loc[s + 1] - step.query_start_loc[s]);
  step.max_seq_len = step.seq_lens.empty() ? 0 : *std::max_element(step.seq_lens.begin(), step.seq_lens.end());
  step.kind = num_decode == step.num_seqs_active ? StepKind::decode
              : num_decode == 0                  ? StepKind::prefill
                                                 : StepKind::mixed;
}

}  // namespace ingot
