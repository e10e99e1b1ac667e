#include "ingot/step_builder.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "module.h"
#include "step_result.h"

namespace ingot::python {
namespace {

void check_rows(const char* name, size_t size, size_t rows) {
  if (size != rows)
    throw_error(ErrorKind::bad_call, "Step.set_samples: {} has {} entries, rows has {}", name, size, rows);
}

// [R] arrays become the step's lists: no Python object a row.
void set_samples(Step& step, const Array<int32_t>& rows, const std::vector<SamplingParams>& params,
                 const Array<int32_t>& params_index, const Array<int32_t>& slots, const Array<uint8_t>& kinds,
                 const Array<int32_t>& tops, const Array<int32_t>& targets) {
  const size_t count = rows.size();
  check_rows("params_index", params_index.size(), count);
  check_rows("slots", slots.size(), count);
  check_rows("kinds", kinds.size(), count);
  check_rows("tops", tops.size(), count);
  check_rows("targets", targets.size(), count);
  step.sampling.assign(count, SamplingParams{.temperature = 0.0f});
  step.output.resize(count);
  for (size_t r = 0; r < count; ++r) {
    const int64_t index = params_index.data()[r];
    if (index >= static_cast<int64_t>(params.size()))
      throw_error(ErrorKind::bad_call, "Step.set_samples: params_index[{}] is {}, params has {}", r, index,
                  params.size());
    if (index >= 0) step.sampling[r] = params[static_cast<size_t>(index)];
    step.output[r] = {static_cast<RowOutput::Kind>(kinds.data()[r]), tops.data()[r], targets.data()[r]};
  }
  step.sample_rows = to_vector<int32_t>(rows);
  step.sampler_slot = to_vector<int32_t>(slots);
}

void set_block_table(Step& step, const Matrix<int32_t>& table) {
  step.block_table = to_vector<int32_t>(table);
  step.max_blocks = static_cast<int32_t>(table.shape(1));
}

nb::object block_table(const Step& step) {
  const auto width = static_cast<size_t>(std::max(step.max_blocks, 1));
  return to_numpy(step.block_table, {step.block_table.size() / width, width});
}

void set_grammar_mask(Step& step, std::optional<Matrix<uint32_t>> mask) {
  step.grammar_mask = mask ? to_vector<uint32_t>(*mask) : std::vector<uint32_t>();
}

void add_sampler_reset(Step& step, int32_t slot, const Array<int32_t>& prompt_ids, const Array<int32_t>& output_ids) {
  step.sampler_resets.push_back({slot, to_vector<int32_t>(prompt_ids), to_vector<int32_t>(output_ids)});
}

void set_block_copies(Step& step, const std::vector<std::pair<int32_t, int32_t>>& copies) {
  step.block_copies.clear();
  for (const auto& [from, to] : copies) step.block_copies.push_back({from, to});
}

// def_array("token_ids", &Step::token_ids, ...): a NumPy array in, a copy of it out.
template <typename T>
void def_array(nb::class_<Step>& c, const char* name, std::vector<T> Step::* member, const char* doc) {
  c.def_prop_rw(
      name, [member](const Step& s) { return to_numpy(s.*member); },
      [member](Step& s, const Array<T>& a) { s.*member = to_vector<T>(a); }, doc);
}

void bind_params(nb::module_& m) {
  nb::class_<SamplingParams>(m, "StepSampling", "How the token of one row is chosen; see docs/step-contract.md.")
      .def(
          "__init__",
          [](SamplingParams* p, float temperature, int32_t top_k, float top_p, float min_p, float presence_penalty,
             float frequency_penalty, float repetition_penalty, uint64_t seed, int32_t min_tokens,
             std::vector<int32_t> stop_token_ids, std::vector<std::pair<int32_t, float>> logit_bias,
             std::vector<int32_t> allowed_token_ids, std::vector<std::vector<int32_t>> bad_words) {
            new (p) SamplingParams{temperature,
                                   top_k,
                                   top_p,
                                   min_p,
                                   presence_penalty,
                                   frequency_penalty,
                                   repetition_penalty,
                                   seed,
                                   min_tokens,
                                   std::move(stop_token_ids),
                                   std::move(logit_bias),
                                   std::move(allowed_token_ids),
                                   std::move(bad_words)};
          },
          nb::kw_only(), nb::arg("temperature") = 1.0f, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0f,
          nb::arg("min_p") = 0.0f, nb::arg("presence_penalty") = 0.0f, nb::arg("frequency_penalty") = 0.0f,
          nb::arg("repetition_penalty") = 1.0f, nb::arg("seed") = 0, nb::arg("min_tokens") = 0,
          nb::arg("stop_token_ids") = std::vector<int32_t>(),
          nb::arg("logit_bias") = std::vector<std::pair<int32_t, float>>(),
          nb::arg("allowed_token_ids") = std::vector<int32_t>(),
          nb::arg("bad_words") = std::vector<std::vector<int32_t>>(),
          "Temperature 0 is greedy. `logit_bias` is a list of (token, bias); each of `bad_words` a list of token ids.")
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("min_tokens", &SamplingParams::min_tokens)
      .def_rw("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("allowed_token_ids", &SamplingParams::allowed_token_ids)
      .def_rw("bad_words", &SamplingParams::bad_words);
}

void bind_result(nb::module_& m) {
  nb::class_<ResultArrays>(m, "StepResult",
                           "What the R sampled rows of a step produced, in the order of its sample_rows.")
      .def_ro("tokens", &ResultArrays::tokens, "int32 [R]: sampled, or the target of a scored row; -1 for full logits")
      .def_ro("logprobs", &ResultArrays::logprobs, "float32 [R]: of `tokens`; 0 where none was asked for")
      .def_ro("ranks", &ResultArrays::ranks, "int32 [R]: 1 is the most likely; 0 where none was asked for")
      .def_ro("top_ids", &ResultArrays::top_ids, "int32 [R, K], most likely first; -1 past the row's own `top`")
      .def_ro("top_values", &ResultArrays::top_values, "float32 [R, K]: logprobs, or raw logits for top_logits")
      .def_ro("logits", &ResultArrays::logits, "float32 [L, vocab]: the rows of full logits, in order")
      .def_ro("stats", &ResultArrays::stats, "a dict: submissions, waits, times in microseconds, bytes read");
}

}  // namespace

ResultArrays to_arrays(const StepResult& result) {
  const size_t rows = result.rows.size();
  std::vector<int32_t> tokens(rows), ranks(rows);
  std::vector<float> logprobs(rows), logits;
  size_t width = 0, logits_rows = 0;
  for (const RowResult& row : result.rows) {
    width = std::max(width, row.top.size());
    logits_rows += !row.logits.empty();
  }
  std::vector<int32_t> top_ids(rows * width, -1);
  std::vector<float> top_values(rows * width, 0.0f);
  for (size_t r = 0; r < rows; ++r) {
    const RowResult& row = result.rows[r];
    tokens[r] = row.token;
    ranks[r] = row.rank;
    logprobs[r] = row.logprob;
    for (size_t i = 0; i < row.top.size(); ++i) {
      top_ids[r * width + i] = row.top[i].token;
      top_values[r * width + i] = row.top[i].logprob;
    }
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
  }
  const StepStats& s = result.stats;
  nb::dict stats;
  stats["submissions"] = s.submissions;
  stats["waits"] = s.waits;
  stats["encode_waits"] = s.encode_waits;
  stats["encode_readbacks"] = s.encode_readbacks;
  stats["encode_allocations"] = s.encode_allocations;
  stats["encode_compiles"] = s.encode_compiles;
  stats["dispatches"] = s.dispatches;
  stats["stage_us"] = s.stage_us;
  stats["encode_us"] = s.encode_us;
  stats["run_us"] = s.run_us;
  stats["gap_us"] = s.gap_us;
  stats["weight_bytes"] = s.weight_bytes;
  stats["kv_bytes"] = s.kv_bytes;
  stats["wire_bytes"] = s.wire_bytes;
  stats["wire_messages"] = s.wire_messages;
  stats["collectives"] = s.collectives;
  const size_t vocab = logits_rows == 0 ? 0 : logits.size() / logits_rows;
  return {to_numpy(tokens),
          to_numpy(logprobs),
          to_numpy(ranks),
          to_numpy(top_ids, {rows, width}),
          to_numpy(top_values, {rows, width}),
          to_numpy(logits, {logits_rows, vocab}),
          stats};
}

void bind_step(nb::module_& m) {
  nb::enum_<StepKind>(m, "StepKind")
      .value("prefill", StepKind::prefill)
      .value("decode", StepKind::decode)
      .value("mixed", StepKind::mixed);
  m.attr("OUTPUT_TOKEN") = static_cast<int>(RowOutput::Kind::token);
  m.attr("OUTPUT_LOGPROBS") = static_cast<int>(RowOutput::Kind::logprobs);
  m.attr("OUTPUT_SCORE") = static_cast<int>(RowOutput::Kind::score);
  m.attr("OUTPUT_TOP_LOGITS") = static_cast<int>(RowOutput::Kind::top_logits);
  m.attr("OUTPUT_FULL_LOGITS") = static_cast<int>(RowOutput::Kind::full_logits);
  bind_params(m);
  bind_result(m);

  nb::class_<Step> step(
      m, "Step",
      "One step of the engine: T rows (tokens) of S sequences, R of which produce output. Plain data; "
      "arrays are copied in and out. See docs/step-contract.md.");
  step.def(nb::init<>())
      .def_rw("kind", &Step::kind)
      .def_rw("num_scheduled_tokens", &Step::num_scheduled_tokens, "T")
      .def_rw("num_seqs_active", &Step::num_seqs_active, "S")
      .def_rw("num_decode_tokens", &Step::num_decode_tokens, "rows of decode sequences; they come first")
      .def_rw("max_query_len", &Step::max_query_len)
      .def_rw("max_seq_len", &Step::max_seq_len);
  def_array(step, "token_ids", &Step::token_ids, "int32 [T]; -1 - r: what output row r of the previous step sampled");
  def_array(step, "positions", &Step::positions, "int32 [T]");
  def_array(step, "slot_mapping", &Step::slot_mapping, "int64 [T]: block * block_size + offset");
  def_array(step, "query_start_loc", &Step::query_start_loc, "int32 [S + 1]");
  def_array(step, "seq_lens", &Step::seq_lens, "int32 [S]: full lengths, this step's rows included");
  def_array(step, "blocks_to_zero", &Step::blocks_to_zero, "int32: cleared before the step");
  step.def_prop_rw("block_table", &block_table, &set_block_table, "int32 [S, max_blocks]; unused entries are -1")
      .def_prop_ro(
          "sample_rows", [](const Step& s) { return to_numpy(s.sample_rows); }, "int32 [R]")
      .def_prop_ro(
          "sampler_slot", [](const Step& s) { return to_numpy(s.sampler_slot); }, "int32 [R]")
      .def_prop_rw(
          "grammar_mask", [](const Step& s) { return to_numpy(s.grammar_mask); }, &set_grammar_mask,
          nb::for_setter(nb::arg("mask").none()), "uint32 [R, ceil(vocab / 32)], bit set = allowed; None: no mask")
      .def("set_block_copies", &set_block_copies, nb::arg("copies"), "(from, to) pairs, applied before the step")
      .def("add_sampler_reset", &add_sampler_reset, nb::arg("slot"), nb::arg("prompt_ids"), nb::arg("output_ids"),
           "Writes the penalty history of a sampler slot before the step.")
      .def("set_samples", &set_samples, nb::arg("rows"), nb::arg("params"), nb::arg("params_index"), nb::arg("slots"),
           nb::arg("kinds"), nb::arg("tops"), nb::arg("targets"),
           "The R rows that produce output, ascending. Row r is sampled with params[params_index[r]] (-1: greedy), "
           "keeps its history in slots[r] (-1: none) and returns an OUTPUT_* of kinds[r] with tops[r] alternatives; "
           "targets[r] is the token an OUTPUT_SCORE row rates.")
      .def("set_totals", &ingot::set_totals, nb::arg("num_decode"),
           "Fills in kind and the totals from the arrays; the first `num_decode` sequences have one row each.");
  bind_gather(step);
}

}  // namespace ingot::python
