#include "step/validate.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ingot {
namespace {

std::string describe(const std::string& field, int64_t index, const std::string& reason) {
  if (index < 0) return fmt::format("step: {}: {}", field, reason);
  return fmt::format("step: {}[{}]: {}", field, index, reason);
}

[[noreturn]] void fail(std::string field, int64_t index, int64_t value, int64_t limit, std::string reason) {
  throw StepError(std::move(field), index, std::move(reason), value, limit);
}

// Half-open range check: low <= value < high.
void check_range(const char* field, int64_t index, int64_t value, int64_t low, int64_t high) {
  if (value < low || value >= high)
    fail(field, index, value, high, fmt::format("{} is outside [{}, {})", value, low, high));
}

void check_size(const char* field, size_t size, int64_t expected, const char* what) {
  if (static_cast<int64_t>(size) != expected)
    fail(field, -1, static_cast<int64_t>(size), expected,
         fmt::format("has {} entries, {} is {}", size, what, expected));
}

void check_equal(const char* field, int64_t value, int64_t expected, const char* what) {
  if (value != expected) fail(field, -1, value, expected, fmt::format("is {}, but {} is {}", value, what, expected));
}

// A StepError tells numbers as integers; the text has the real ones.
int64_t as_integer(double value) {
  return std::isfinite(value) ? static_cast<int64_t>(std::clamp(value, -1e18, 1e18)) : 0;
}

void check_float(const char* field, int64_t index, double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail(field, index, as_integer(value), as_integer(high), fmt::format("{} is outside [{}, {}]", value, low, high));
}

void check_ids(const char* field, int64_t index, std::span<const int32_t> ids, int64_t vocab) {
  for (int32_t id : ids)
    if (id < 0 || id >= vocab) fail(field, index, id, vocab, fmt::format("token {} is outside [0, {})", id, vocab));
}

// `values` is sorted; fails on the first value that appears twice.
void check_unique(const char* field, std::vector<int64_t>& values, const char* reason) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) fail(field, -1, *twice, 1, fmt::format("{} {}", *twice, reason));
}

// What a caller of the whole system would call it.
std::string parameter_of(const std::string& field) {
  constexpr std::string_view kSampling = "sampling.";
  return field.starts_with(kSampling) ? field.substr(kSampling.size()) : "";
}

constexpr double kFloatMax = 3.4028234663852886e38;

}  // namespace

bool continues_draft(const Step& step, int64_t r) {
  if (r == 0 || step.sampler_slot[r] < 0 || step.sampler_slot[r] != step.sampler_slot[r - 1]) return false;
  if (!draws_token(step.output[r]) || !draws_token(step.output[r - 1])) return false;
  const int32_t row = step.sample_rows[r];
  return row == step.sample_rows[r - 1] + 1 &&
         !std::binary_search(step.query_start_loc.begin(), step.query_start_loc.end(), row);
}

bool moves_blocks(const Step& step) {
  return !(step.block_saves.empty() && step.block_loads.empty() && step.blocks_to_zero.empty() &&
           step.block_copies.empty());
}

bool needs_history(const SamplingParams& p) {
  return p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1 || p.min_tokens > 0 ||
         !p.bad_words.empty();
}

StepError::StepError(std::string field, int64_t index, std::string reason, int64_t value, int64_t limit)
    : Error(ErrorKind::bad_call, describe(field, index, reason), parameter_of(field)),
      field_(std::move(field)),
      index_(index),
      value_(value),
      limit_(limit) {}

void StepValidator::validate(const Step& step, const StepHistory& history) const {
  check_totals(step);
  check_sequences(step);
  check_tokens(step, history);
  check_blocks(step);
  check_resets(step, history);
  check_samples(step, history);
  check_pooled(step, history);
  check_states(step);
}

void StepValidator::check_totals(const Step& step) const {
  const int64_t tokens = step.num_scheduled_tokens;
  const int64_t seqs = step.num_seqs_active;
  const int64_t least = moves_blocks(step) && step.token_ids.empty() ? 0 : 1;  // blocks can be all that it is about
  check_range("num_scheduled_tokens", -1, tokens, least, limits_.max_step_tokens + 1);
  check_range("num_seqs_active", -1, seqs, std::min<int64_t>(tokens, 1), limits_.max_seqs + 1);
  check_size("token_ids", step.token_ids.size(), tokens, "num_scheduled_tokens");
  check_size("positions", step.positions.size(), tokens, "num_scheduled_tokens");
  check_size("slot_mapping", step.slot_mapping.size(), tokens, "num_scheduled_tokens");
  check_size("query_start_loc", step.query_start_loc.size(), seqs + 1, "num_seqs_active + 1");
  check_size("seq_lens", step.seq_lens.size(), seqs, "num_seqs_active");
  check_range("max_blocks", -1, step.max_blocks, std::min<int64_t>(tokens, 1), limits_.num_blocks + 1);
  check_size("block_table", step.block_table.size(), seqs * step.max_blocks, "num_seqs_active * max_blocks");

  const int64_t decode = step.num_decode_tokens;
  check_range("num_decode_tokens", -1, decode, 0, tokens + 1);
  switch (step.kind) {
    case StepKind::prefill: check_equal("num_decode_tokens", decode, 0, "the count in a prefill step"); break;
    case StepKind::decode:
      check_equal("num_decode_tokens", decode, tokens, "num_scheduled_tokens in a decode step");
      check_equal("num_seqs_active", seqs, tokens, "num_scheduled_tokens in a decode step");
      break;
    case StepKind::mixed:
      check_range("num_decode_tokens", -1, decode, 1, tokens);
      if (decode >= seqs)
        fail("num_decode_tokens", -1, decode, seqs,
             fmt::format("is {}, which leaves none of the {} sequences of a mixed step to prefill", decode, seqs));
      break;
    default: fail("kind", -1, static_cast<int64_t>(step.kind), 3, "is not prefill, decode or mixed");
  }
}

void StepValidator::check_sequences(const Step& step) const {
  const int64_t tokens = step.num_scheduled_tokens;
  check_range("query_start_loc", 0, step.query_start_loc[0], 0, 1);
  int32_t longest_query = 0;
  int32_t longest_seq = 0;
  for (int64_t s = 0; s < step.num_seqs_active; ++s) {
    const int64_t begin = step.query_start_loc[s];
    const int64_t end = step.query_start_loc[s + 1];
    check_range("query_start_loc", s + 1, end, begin + 1, tokens + 1);
    const int32_t query = static_cast<int32_t>(end - begin);
    if (s < step.num_decode_tokens && query != 1)
      fail("query_start_loc", s + 1, query, 1, fmt::format("decode sequence {} has {} rows instead of 1", s, query));
    const int32_t length = step.seq_lens[s];
    check_range("seq_lens", s, length, query, limits_.max_model_len + 1);
    const int64_t blocks = (length + limits_.block_size - 1) / limits_.block_size;
    if (blocks > step.max_blocks)
      fail("seq_lens", s, length, step.max_blocks * limits_.block_size,
           fmt::format("{} positions do not fit the table's {} blocks of {}", length, step.max_blocks,
                       limits_.block_size));
    longest_query = std::max(longest_query, query);
    longest_seq = std::max(longest_seq, length);
  }
  check_equal("query_start_loc", step.query_start_loc.back(), tokens, "num_scheduled_tokens");
  check_equal("max_query_len", step.max_query_len, longest_query, "the longest query");
  check_equal("max_seq_len", step.max_seq_len, longest_seq, "the longest sequence");
}

void StepValidator::check_tokens(const Step& step, const StepHistory& history) const {
  for (int64_t s = 0; s < step.num_seqs_active; ++s) {
    const int32_t* table = &step.block_table[s * step.max_blocks];
    const int64_t blocks = (step.seq_lens[s] + limits_.block_size - 1) / limits_.block_size;
    for (int64_t b = 0; b < blocks; ++b)
      check_range("block_table", s * step.max_blocks + b, table[b], 0, limits_.num_blocks);
    const int64_t begin = step.query_start_loc[s];
    const int64_t end = step.query_start_loc[s + 1];
    for (int64_t row = begin; row < end; ++row) {
      const int64_t expected = step.seq_lens[s] - (end - row);
      if (step.positions[row] != expected)
        fail("positions", row, step.positions[row], expected,
             fmt::format("is {}, but the row is at position {} of sequence {}", step.positions[row], expected, s));
      const int64_t slot = step.slot_mapping[row];
      check_range("slot_mapping", row, slot, 0, limits_.num_blocks * limits_.block_size);
      const int64_t mapped = table[expected / limits_.block_size] * limits_.block_size + expected % limits_.block_size;
      if (slot != mapped)
        fail("slot_mapping", row, slot, mapped,
             fmt::format("is {}, but the block table puts position {} of sequence {} in slot {}", slot, expected, s,
                         mapped));
    }
  }
  for (int64_t row = 0; row < step.num_scheduled_tokens; ++row) {
    const int64_t id = step.token_ids[row];
    if (id >= 0) {
      check_range("token_ids", row, id, 0, limits_.token_ids > 0 ? limits_.token_ids : limits_.vocab);
      continue;
    }
    const int64_t source = -1 - id;
    const int64_t rows = static_cast<int64_t>(history.previous_tokens.size());
    if (source >= rows)
      fail("token_ids", row, id, rows,
           fmt::format("{} names row {} of the previous step, which sampled {}", id, source, rows));
    if (!history.previous_tokens[source])
      fail("token_ids", row, id, rows,
           fmt::format("{} names row {} of the previous step, which drew no token", id, source));
  }
  scratch_.assign(step.slot_mapping.begin(), step.slot_mapping.end());
  check_unique("slot_mapping", scratch_, "is written by two rows");
}

void StepValidator::check_blocks(const Step& step) const {
  for (size_t i = 0; i < step.block_saves.size(); ++i) {
    check_range("block_saves", static_cast<int64_t>(i), step.block_saves[i].from, 0, limits_.num_blocks);
    check_range("block_saves", static_cast<int64_t>(i), step.block_saves[i].to, 0, limits_.host_blocks);
  }
  for (size_t i = 0; i < step.block_loads.size(); ++i) {
    check_range("block_loads", static_cast<int64_t>(i), step.block_loads[i].from, 0, limits_.host_blocks);
    check_range("block_loads", static_cast<int64_t>(i), step.block_loads[i].to, 0, limits_.num_blocks);
  }
  for (size_t i = 0; i < step.blocks_to_zero.size(); ++i)
    check_range("blocks_to_zero", static_cast<int64_t>(i), step.blocks_to_zero[i], 0, limits_.num_blocks);
  for (size_t i = 0; i < step.block_copies.size(); ++i) {
    const auto& [from, to] = step.block_copies[i];
    check_range("block_copies", static_cast<int64_t>(i), from, 0, limits_.num_blocks);
    check_range("block_copies", static_cast<int64_t>(i), to, 0, limits_.num_blocks);
    if (from == to)
      fail("block_copies", static_cast<int64_t>(i), from, 0, fmt::format("copies block {} onto itself", from));
  }
  // Each list has a block at most once, so all fit buffers of num_blocks entries and have one meaning.
  scratch_.clear();
  for (const BlockCopy& save : step.block_saves) scratch_.push_back(save.from);
  check_unique("block_saves", scratch_, "is saved twice");
  scratch_.clear();
  for (const BlockCopy& save : step.block_saves) scratch_.push_back(save.to);
  check_unique("block_saves", scratch_, "is the target of two saves");
  scratch_.clear();
  for (const BlockCopy& load : step.block_loads) scratch_.push_back(load.to);
  check_unique("block_loads", scratch_, "is loaded twice");
  scratch_.assign(step.blocks_to_zero.begin(), step.blocks_to_zero.end());
  check_unique("blocks_to_zero", scratch_, "is zeroed twice");
  scratch_.clear();
  for (const BlockCopy& copy : step.block_copies) scratch_.push_back(copy.to);
  check_unique("block_copies", scratch_, "is the target of two copies");
}

void StepValidator::check_resets(const Step& step, const StepHistory& history) const {
  scratch_.clear();
  for (size_t i = 0; i < step.sampler_resets.size(); ++i) {
    const SamplerReset& reset = step.sampler_resets[i];
    const int64_t index = static_cast<int64_t>(i);
    check_range("sampler_resets", index, reset.slot, 0, limits_.sampler_slots);
    check_ids("sampler_resets", index, reset.prompt_ids, limits_.vocab);
    check_ids("sampler_resets", index, reset.output_ids, limits_.vocab);
    const int64_t length = static_cast<int64_t>(reset.prompt_ids.size() + reset.output_ids.size());
    check_range("sampler_resets", index, length, 0, history.slot_capacity + 1);
    scratch_.push_back(reset.slot);
  }
  check_unique("sampler_resets", scratch_, "is reset twice");
}

void StepValidator::check_samples(const Step& step, const StepHistory& history) const {
  const int64_t rows = static_cast<int64_t>(step.sample_rows.size());
  if (rows > limits_.max_sample_rows)
    fail("sample_rows", -1, rows, limits_.max_sample_rows,
         fmt::format("has {} rows, a step samples at most {}", rows, limits_.max_sample_rows));
  check_size("sampling", step.sampling.size(), rows, "the number of sample_rows");
  check_size("sampler_slot", step.sampler_slot.size(), rows, "the number of sample_rows");
  check_size("output", step.output.size(), rows, "the number of sample_rows");
  if (!step.grammar_mask.empty())
    check_size("grammar_mask", step.grammar_mask.size(), rows * ((limits_.vocab + 31) / 32),
               "sample_rows * words of a row");

  int64_t logits_rows = 0;
  int64_t drafted = 0;  // rows before this one that draw from the same slot
  scratch_.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t previous = r == 0 ? -1 : step.sample_rows[r - 1];
    check_range("sample_rows", r, step.sample_rows[r], previous + 1, step.num_scheduled_tokens);
    const RowOutput& output = step.output[r];
    if (output.kind > RowOutput::Kind::full_logits)
      fail("output", r, static_cast<int64_t>(output.kind), 5, "is not a kind of output");
    check_range("output", r, output.top, 0, limits_.max_top + 1);
    if (output.kind == RowOutput::Kind::score) check_range("output", r, output.target, 0, limits_.vocab);
    logits_rows += output.kind == RowOutput::Kind::full_logits;

    const int64_t slot = step.sampler_slot[r];
    check_range("sampler_slot", r, slot, -1, limits_.sampler_slots);
    check_sampling(step.sampling[r], r);
    if (!draws_token(output)) continue;
    if (slot < 0) {
      if (needs_history(step.sampling[r]))
        fail("sampler_slot", r, slot, 0, "penalties, bad words and min_tokens need a sampler slot");
      continue;
    }
    if (continues_draft(step, r)) {
      ++drafted;
      const int64_t id = step.token_ids[step.sample_rows[r]];
      if (id < 0) fail("token_ids", step.sample_rows[r], id, 0, "a draft's tokens must be known");
    } else {
      drafted = 0;
      scratch_.push_back(slot);
    }
    int64_t length = history.slot_lengths[slot];
    for (const SamplerReset& reset : step.sampler_resets)
      if (reset.slot == slot) length = static_cast<int64_t>(reset.prompt_ids.size() + reset.output_ids.size());
    if (length < 0) fail("sampler_slot", r, slot, 0, fmt::format("slot {} was never reset", slot));
    if (length + drafted >= history.slot_capacity)
      fail("sampler_slot", r, length + drafted, history.slot_capacity,
           fmt::format("slot {} is full: it holds {} tokens", slot, length + drafted));
  }
  check_unique("sampler_slot", scratch_, "is used by two rows that are not neighbours in one sequence");
  if (logits_rows > limits_.max_logits_rows)
    fail("output", -1, logits_rows, limits_.max_logits_rows,
         fmt::format("{} rows of full logits asked for, a step returns at most {}", logits_rows,
                     limits_.max_logits_rows));
}

void StepValidator::check_pooled(const Step& step, const StepHistory& history) const {
  if (step.pooled.empty()) return;
  if (!limits_.pooling) fail("pooled", -1, static_cast<int64_t>(step.pooled.size()), 0, "this engine pools nothing");
  scratch_.clear();
  int64_t next = 0;
  for (size_t i = 0; i < step.pooled.size(); ++i) {
    const auto& [seq, slot] = step.pooled[i];
    const auto index = static_cast<int64_t>(i);
    check_range("pooled", index, seq, next, step.num_seqs_active);
    check_range("pooled", index, slot, 0, limits_.sampler_slots);
    scratch_.push_back(slot);
    next = seq + 1;
    const auto s = static_cast<size_t>(seq);
    const int64_t before = step.seq_lens[s] - (step.query_start_loc[s + 1] - step.query_start_loc[s]);
    const int64_t pooled = history.pooled_rows[static_cast<size_t>(slot)];
    if (limits_.pooling.keeps() && before > 0 && before != pooled)
      fail("pooled", index, before, pooled,
           fmt::format("sequence {} has {} rows in earlier steps, but {} were pooled in slot {}", seq, before, pooled,
                       slot));
  }
  check_unique("pooled", scratch_, "is the slot of two sequences");
}

void StepValidator::check_states(const Step& step) const {
  const auto rows = static_cast<int64_t>(step.state_rows.size());
  if (rows > limits_.max_state_rows)
    fail("state_rows", -1, rows, limits_.max_state_rows,
         limits_.state_width == 0
             ? "this engine gives no hidden states"
             : fmt::format("has {} rows, a step gives the states of at most {}", rows, limits_.max_state_rows));
  for (int64_t i = 0; i < rows; ++i)
    check_range("state_rows", i, step.state_rows[i], i == 0 ? 0 : step.state_rows[i - 1] + 1,
                step.num_scheduled_tokens);
  const int64_t width = step.given_width;
  if (limits_.reads_width == 0) {
    check_equal("given_width", width, 0, "what a model reads");
  } else if (step.num_scheduled_tokens > 0 && width != limits_.reads_width && width != limits_.state_width) {
    fail("given_width", -1, width, limits_.reads_width,
         fmt::format("is {}, but a head reads states of {}, or its own of {}", width, limits_.reads_width,
                     limits_.state_width));
  }
  check_size("states", step.states.size(), step.num_scheduled_tokens * width, "num_scheduled_tokens * given_width");
}

void StepValidator::check_sampling(const SamplingParams& p, int64_t row) const {
  check_float("sampling.temperature", row, p.temperature, 0, kFloatMax);
  check_range("sampling.top_k", row, p.top_k, -1, INT32_MAX);
  check_float("sampling.top_p", row, p.top_p, 0, 1);
  if (p.top_p == 0) fail("sampling.top_p", row, 0, 1, "0 is outside (0, 1]");
  check_float("sampling.min_p", row, p.min_p, 0, 1);
  check_float("sampling.presence_penalty", row, p.presence_penalty, -kFloatMax, kFloatMax);
  check_float("sampling.frequency_penalty", row, p.frequency_penalty, -kFloatMax, kFloatMax);
  check_float("sampling.repetition_penalty", row, p.repetition_penalty, 0, kFloatMax);
  if (p.repetition_penalty == 0) fail("sampling.repetition_penalty", row, 0, 0, "must be above 0");
  check_range("sampling.min_tokens", row, p.min_tokens, 0, INT32_MAX);
  check_ids("sampling.stop_token_ids", row, p.stop_token_ids, limits_.vocab);
  check_ids("sampling.allowed_token_ids", row, p.allowed_token_ids, limits_.vocab);
  for (const auto& [token, bias] : p.logit_bias) {
    check_ids("sampling.logit_bias", row, {&token, 1}, limits_.vocab);
    check_float("sampling.logit_bias", row, bias, -kFloatMax, kFloatMax);
  }
  for (const std::vector<int32_t>& word : p.bad_words) {
    if (word.empty()) fail("sampling.bad_words", row, 0, 1, "has an empty word");
    check_ids("sampling.bad_words", row, word, limits_.vocab);
  }
}

}  // namespace ingot
