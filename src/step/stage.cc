#include "step/stage.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/ceil_div.h"
#include "step/validate.h"

namespace ingot {
namespace {

// Fills the shared buffer front to back.
class Stager {
 public:
  explicit Stager(std::span<std::byte> memory) : memory_(memory) {}

  // Reserves `bytes` at the next multiple of `alignment`; returns the offset.
  size_t reserve(size_t bytes, size_t alignment) {
    const size_t offset = (used_ + alignment - 1) / alignment * alignment;
    if (offset > memory_.size() || bytes > memory_.size() - offset)
      throw StepError("stage", -1,
                      fmt::format("the step's inputs need more than the {} bytes planned at load", memory_.size()),
                      static_cast<int64_t>(offset + bytes), static_cast<int64_t>(memory_.size()));
    used_ = offset + bytes;
    return offset;
  }

  // Copies an array to the next cache line.
  template <typename T>
  size_t copy(const std::vector<T>& values) {
    const size_t offset = reserve(values.size() * sizeof(T), 64);
    if (!values.empty()) std::memcpy(memory_.data() + offset, values.data(), values.size() * sizeof(T));
    return offset;
  }

  template <typename T>
  T* at(size_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  size_t used() const { return used_; }

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

// The last part of the buffer: lists of any length, addressed by their word offset.
class WordPool {
 public:
  explicit WordPool(Stager& stager) : stager_(stager), start_(stager.reserve(0, 64)) {}

  size_t start() const { return start_; }
  int32_t words() const { return static_cast<int32_t>((stager_.used() - start_) / 4); }

  // Appends the values and returns the word offset of the first.
  template <typename T>
  int32_t append(std::span<const T> values) {
    static_assert(sizeof(T) == 4);
    const int32_t first = words();
    const size_t offset = stager_.reserve(values.size_bytes(), 4);
    if (!values.empty()) std::memcpy(stager_.at<T>(offset), values.data(), values.size_bytes());
    return first;
  }
  template <typename T>
  int32_t append(const std::vector<T>& values) {
    return append(std::span<const T>(values));
  }
  int32_t append(int32_t value) { return append(std::span<const int32_t>(&value, 1)); }

 private:
  Stager& stager_;
  size_t start_;
};

StagedSampling stage_sampling(const SamplingParams& p, WordPool& pool) {
  StagedSampling s{};
  s.temperature = p.temperature;
  s.top_p = p.top_p;
  s.min_p = p.min_p;
  s.presence_penalty = p.presence_penalty;
  s.frequency_penalty = p.frequency_penalty;
  s.repetition_penalty = p.repetition_penalty;
  s.top_k = std::max(p.top_k, 0);
  s.seed = p.seed;
  s.min_tokens = p.min_tokens;
  s.stop_count = static_cast<int32_t>(p.stop_token_ids.size());
  s.stop_offset = pool.append(p.stop_token_ids);
  s.bias_count = static_cast<int32_t>(p.logit_bias.size());
  s.bias_offset = pool.words();
  for (const auto& [token, bias] : p.logit_bias) {
    pool.append(token);
    pool.append(std::bit_cast<int32_t>(bias));
  }
  std::vector<int32_t> allowed = p.allowed_token_ids;
  std::sort(allowed.begin(), allowed.end());
  allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
  s.allowed_count = static_cast<int32_t>(allowed.size());
  s.allowed_offset = pool.append(allowed);
  s.bad_count = static_cast<int32_t>(p.bad_words.size());
  s.bad_offset = pool.words();
  for (const std::vector<int32_t>& word : p.bad_words) {
    pool.append(static_cast<int32_t>(word.size()));
    pool.append(word);
  }
  return s;
}

// A row that draws a token, and may not draw every one. (All bits set cost the device as much as a real mask.)
bool is_masked(const RowOutput& output, std::span<const uint32_t> mask) {
  return draws_token(output) && !std::ranges::all_of(mask, [](uint32_t word) { return word == ~0u; });
}

// The tokens of the rows that share a slot with row r - 1, from row r on.
std::span<const int32_t> draft_from(const Step& step, size_t r) {
  size_t end = r;
  while (end < step.sample_rows.size() && continues_draft(step, static_cast<int64_t>(end))) ++end;
  return std::span(step.token_ids).subspan(static_cast<size_t>(step.sample_rows[r]), end - r);
}

void stage_samples(const Step& step, int64_t vocab, size_t offset, Stager& stager, WordPool& pool) {
  const size_t mask_words = static_cast<size_t>((vocab + 31) / 32);
  int32_t logits_rows = 0;
  int32_t draft_offset = 0, draft_count = 0;  // of the row before
  for (size_t r = 0; r < step.sample_rows.size(); ++r) {
    StagedSampling s = stage_sampling(step.sampling[r], pool);
    s.slot = step.sampler_slot[r];
    if (continues_draft(step, static_cast<int64_t>(r))) {
      if (draft_count == 0) draft_offset = pool.append(draft_from(step, r));
      ++draft_count;
    } else {
      draft_count = 0;
    }
    s.draft_offset = draft_offset;
    s.draft_count = draft_count;
    s.position = step.positions[step.sample_rows[r]] + 1;
    s.kind = static_cast<int32_t>(step.output[r].kind);
    s.top = step.output[r].top;
    s.target = step.output[r].target;
    s.logits_row = step.output[r].kind == RowOutput::Kind::full_logits ? logits_rows++ : -1;
    s.mask_offset = -1;
    if (!step.grammar_mask.empty()) {
      const auto mask = std::span(step.grammar_mask).subspan(r * mask_words, mask_words);
      if (is_masked(step.output[r], mask)) s.mask_offset = pool.append(mask);
    }
    stager.at<StagedSampling>(offset)[r] = s;
  }
}

// Some of the blocks, by their numbers.
class BlockSet {
 public:
  void add(int64_t block) {
    if (block < 0) return;  // an unused entry of a table
    const auto i = static_cast<size_t>(block);
    if (i >= has_.size()) has_.resize(std::max(i + 1, 2 * has_.size()), false);
    has_[i] = true;
  }
  bool has(int64_t block) const { return static_cast<size_t>(block) < has_.size() && has_[static_cast<size_t>(block)]; }

 private:
  std::vector<bool> has_;
};

// Saves and loads, those first that the rows, zeros or copies of the step depend on, or that overwrite what they read.
struct Moves {
  std::vector<BlockCopy> saves, loads;
  size_t saves_first = 0, loads_first = 0;
};

Moves order_moves(const Step& step, int64_t block_size) {
  Moves moves{.saves = step.block_saves, .loads = step.block_loads};
  if (moves.saves.empty() && moves.loads.empty()) return moves;
  BlockSet read, written, loaded_from;
  for (const int32_t block : step.block_table) read.add(block);
  for (const int64_t slot : step.slot_mapping) written.add(slot / block_size);
  for (const int32_t block : step.blocks_to_zero) written.add(block);
  for (const BlockCopy& copy : step.block_copies) {
    read.add(copy.from);
    written.add(copy.to);
  }
  const auto first_of = [](std::vector<BlockCopy>& list, const auto& comes_first) {
    return static_cast<size_t>(std::ranges::stable_partition(list, comes_first).begin() - list.begin());
  };
  moves.loads_first =
      first_of(moves.loads, [&](const BlockCopy& load) { return read.has(load.to) || written.has(load.to); });
  for (const BlockCopy& load : std::span(moves.loads).first(moves.loads_first)) {
    loaded_from.add(load.from);
    written.add(load.to);
  }
  moves.saves_first =
      first_of(moves.saves, [&](const BlockCopy& save) { return written.has(save.from) || loaded_from.has(save.to); });
  return moves;
}

}  // namespace

StagedStep stage_step(const Step& step, int64_t vocab, int64_t block_size, int ring, std::span<std::byte> memory,
                      const EmbeddedRows* embedded) {
  Stager stager(memory);
  StagedStep staged;
  const Moves moves = order_moves(step, block_size);
  staged.ring = ring;
  staged.tokens = step.num_scheduled_tokens;
  staged.seqs = step.num_seqs_active;
  staged.decode_rows = step.num_decode_tokens;
  staged.samples = static_cast<int32_t>(step.sample_rows.size());
  staged.max_blocks = step.max_blocks;
  staged.max_query_len = step.max_query_len;
  staged.max_seq_len = step.max_seq_len;
  staged.saves = static_cast<int32_t>(step.block_saves.size());
  staged.loads = static_cast<int32_t>(step.block_loads.size());
  staged.saves_first = static_cast<int32_t>(moves.saves_first);
  staged.loads_first = static_cast<int32_t>(moves.loads_first);
  staged.copies = static_cast<int32_t>(step.block_copies.size());
  staged.zeros = static_cast<int32_t>(step.blocks_to_zero.size());
  staged.resets = static_cast<int32_t>(step.sampler_resets.size());
  staged.token_ids = stager.copy(step.token_ids);
  staged.positions = stager.copy(step.positions);
  staged.slots = stager.copy(step.slot_mapping);
  staged.query_start = stager.copy(step.query_start_loc);
  staged.seq_lens = stager.copy(step.seq_lens);
  staged.block_table = stager.copy(step.block_table);
  staged.block_saves = stager.copy(moves.saves);
  staged.block_loads = stager.copy(moves.loads);
  staged.block_copies = stager.copy(step.block_copies);
  staged.block_zeros = stager.copy(step.blocks_to_zero);
  staged.states = static_cast<int32_t>(step.state_rows.size());
  staged.given_width = step.given_width;
  staged.state_rows = stager.copy(step.state_rows);
  staged.given = stager.copy(step.states);
  if (embedded != nullptr) {
    const auto width = static_cast<size_t>(embedded->width);
    staged.embedded = stager.reserve(step.token_ids.size() * width * sizeof(float), 64);
    for (size_t row = 0; row < step.token_ids.size(); ++row)
      embedded->read(step.token_ids[row], step.positions[row], stager.at<float>(staged.embedded) + row * width);
  }
  staged.sample_rows = stager.copy(step.sample_rows);
  staged.sampling = stager.reserve(step.sample_rows.size() * sizeof(StagedSampling), 64);
  staged.reset_words = stager.reserve(step.sampler_resets.size() * 4 * sizeof(int32_t), 64);

  WordPool pool(stager);
  staged.pool = pool.start();
  stage_samples(step, vocab, staged.sampling, stager, pool);
  int32_t* words = stager.at<int32_t>(staged.reset_words);
  for (const SamplerReset& reset : step.sampler_resets) {
    const int32_t first = pool.append(reset.prompt_ids);
    pool.append(reset.output_ids);
    *words++ = reset.slot;
    *words++ = first;
    *words++ = static_cast<int32_t>(reset.prompt_ids.size());
    *words++ = static_cast<int32_t>(reset.output_ids.size());
  }
  staged.pooled = static_cast<int32_t>(step.pooled.size());
  staged.pooled_word = pool.words();
  for (const PooledSequence& pooled : step.pooled) {  // PooledRows
    const auto seq = static_cast<size_t>(pooled.seq);
    const int32_t first = step.query_start_loc[seq], count = step.query_start_loc[seq + 1] - first;
    for (const int32_t word : {first, count, step.seq_lens[seq] - count, pooled.slot}) pool.append(word);
  }
  staged.bytes = stager.used();
  return staged;
}

// Its arrays, and a pool for masks, histories and token lists.
size_t stage_bytes(const EngineLimits& limits) {
  const int64_t blocks_per_seq = ceil_div(limits.max_model_len, limits.block_size);
  const int64_t tokens = limits.max_step_tokens;
  const int64_t rows = limits.max_sample_rows;
  const int64_t arrays = tokens * (4 + 4 + 8) + limits.max_seqs * (8 + 4 * blocks_per_seq) + limits.num_blocks * 28 +
                         rows * (4 + static_cast<int64_t>(sizeof(StagedSampling))) + limits.sampler_slots * 16 +
                         limits.max_seqs * 16;
  const int64_t drafts = rows * 4;
  // A head's states, and rows of its embedding, which are as wide as those that it gives.
  const int64_t states =
      4 * (limits.max_state_rows + (limits.reads_width > 0 ? tokens : 0) * (limits.reads_width + limits.state_width));
  const int64_t masks = std::min<int64_t>(rows, limits.max_seqs) * ceil_div(limits.vocab, 32) * 4;
  return static_cast<size_t>(arrays + drafts + masks + states + 4 * limits.max_list_words + 21 * 64);
}

}  // namespace ingot
