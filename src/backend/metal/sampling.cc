#include "backend/metal/sampling.h"

#include <algorithm>
#include <cstddef>

#include "backend/metal/ops.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "ingot/step.h"

namespace ingot::metal {
namespace {

constexpr int64_t kLeastWorkRows = 64;

static_assert(sizeof(StagedSampling) == sizeof(SampleParams) &&
              offsetof(StagedSampling, seed) == offsetof(SampleParams, seed) &&
              offsetof(StagedSampling, min_tokens) == offsetof(SampleParams, min_tokens) &&
              offsetof(StagedSampling, draft_count) == offsetof(SampleParams, draft_count));

int64_t chunks_of(int64_t vocab) { return ceil_div(vocab, kSampleChunk); }
int64_t work_rows_of(const SamplerLayout& layout) { return std::max<int64_t>(layout.slots, kLeastWorkRows); }
size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * 4; }

// Whether the logits of a row may change before the temperature: an upper bound of what the kernels find.
bool may_process(const StagedSampling& p) {
  const auto kind = static_cast<RowOutput::Kind>(p.kind);
  if (kind != RowOutput::Kind::token && kind != RowOutput::Kind::logprobs) return false;
  if (p.allowed_count > 0 || p.mask_offset >= 0 || p.bad_count > 0 || p.bias_count > 0) return true;
  return p.slot >= 0 && (p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1 ||
                         (p.stop_count > 0 && p.min_tokens > 0));
}

}  // namespace

size_t Sampler::bytes(const SamplerLayout& layout) {
  return bytes_of(layout.slots * (layout.max_tokens + 2 + layout.vocab)) +
         bytes_of(work_rows_of(layout) * layout.vocab);
}

Sampler::Sampler(const SamplerLayout& layout, Memory& memory) : layout_(layout), work_rows_(work_rows_of(layout)) {
  history_ = memory.new_private(bytes_of(layout.slots * layout.max_tokens), "work sampler history");
  counts_ = memory.new_zeros(bytes_of(2 * layout.slots), "work sampler counts");
  seen_ = memory.new_zeros(bytes_of(layout.slots * layout.vocab), "work sampler seen");
}

void Sampler::create_rows(const OutputLayout& output, Memory& memory) {
  if (output.max_top > int64_t{kSampleMaxTop})
    throw_error(ErrorKind::declined, "gpu: {} alternatives a row, the kernels give at most {}", output.max_top,
                kSampleMaxTop);
  output_ = output;
  max_rows_ = output.max_rows;
  work_rows_ = std::min<int64_t>(work_rows_of(layout_), max_rows_);
  work_ = memory.new_private(bytes_of(work_rows_ * layout_.vocab), "work sampler logits");
  chunks_ = memory.new_private(static_cast<size_t>(max_rows_ * chunks_of(layout_.vocab)) * sizeof(SampleChunk),
                               "work sampler statistics");
  last_tokens_ = memory.new_zeros(bytes_of(2 * max_rows_), "work last tokens");
}

void Sampler::prepare(const StepView& step) {
  const int64_t processed = std::count_if(step.sampling(), step.sampling() + step.step().samples, may_process);
  if (processed > work_rows_)
    throw_error(ErrorKind::bad_call,
                "gpu: {} rows with penalties, biases or masks in one step, there is room for {}; send fewer", processed,
                work_rows_);
  processes_ = processed > 0;
}

void Sampler::reset_slots(Context& context) {
  Encoder& encoder = context.encoder;
  encoder.use("sample_reset");
  encoder.read(0, context.staged(context.step.reset_words));
  encoder.read(1, context.staged(context.step.pool));
  encoder.update(2, whole(history_));
  encoder.update(3, whole(counts_));
  encoder.update(4, whole(seen_));
  encoder.value(5, SampleResetParams{.max_tokens = static_cast<uint32_t>(layout_.max_tokens),
                                     .vocab = static_cast<uint32_t>(layout_.vocab)});
  encoder.dispatch({static_cast<NS::UInteger>(context.step.resets), 1, 1}, {kSampleThreads, 1, 1});
}

void encode(const SampleOp& op, Context& context) { context.sampler->sample(op, context); }

void Sampler::sample(const SampleOp& op, Context& context) {
  const auto rows = static_cast<NS::UInteger>(context.step.samples);
  const int64_t chunks = chunks_of(layout_.vocab);
  const SampleOutput params{.rows = static_cast<uint32_t>(rows),
                            .chunks = static_cast<uint32_t>(chunks),
                            .max_top = static_cast<uint32_t>(output_.max_top),
                            .max_tokens = static_cast<uint32_t>(layout_.max_tokens),
                            .tokens = output_.tokens,
                            .logprobs = output_.logprobs,
                            .ranks = output_.ranks,
                            .top_ids = output_.top_ids,
                            .top_values = output_.top_values,
                            .logits = output_.logits,
                            .last_offset = static_cast<uint32_t>(static_cast<int64_t>(context.number % 2) * max_rows_),
                            .vocab = static_cast<uint32_t>(layout_.vocab)};

  const BufferView logits = context.words(op.logits, static_cast<int64_t>(rows) * op.vocab);
  const BufferView output{context.output.get(), 0, output_.bytes};

  Encoder& encoder = context.encoder;
  encoder.use("sample_stats");
  encoder.read(0, logits);
  encoder.read(1, context.staged(context.step.sampling));
  encoder.write(2, whole(chunks_));
  encoder.write(3, output);
  encoder.value(4, params);
  encoder.dispatch({static_cast<NS::UInteger>(chunks), rows, 1}, {kSampleThreads, 1, 1});

  if (processes_ || encoder.rehearsing()) {
    encoder.use("sample_process");
    encoder.read(0, logits);
    encoder.read(1, context.staged(context.step.sampling));
    encoder.read(2, context.staged(context.step.pool));
    encoder.read(3, whole(history_));
    encoder.read(4, whole(counts_));
    encoder.read(5, whole(seen_));
    encoder.write(6, whole(work_));
    encoder.value(7, params);
    encoder.dispatch({rows, 1, 1}, {kSampleThreads, 1, 1});
  }

  encoder.use("sample_rows");
  encoder.read(0, logits);
  encoder.read(1, context.staged(context.step.sampling));
  encoder.read(2, whole(chunks_));
  encoder.read(3, whole(work_));
  encoder.read(4, whole(counts_));
  encoder.write(5, output);
  encoder.write(6, whole(last_tokens_));
  encoder.value(7, params);
  encoder.dispatch({rows, 1, 1}, {kSampleThreads, 1, 1});

  encoder.use("sample_commit");
  encoder.read(0, context.staged(context.step.sampling));
  encoder.read(1, output);
  encoder.read(6, context.staged(context.step.pool));
  encoder.update(2, whole(history_));
  encoder.update(3, whole(counts_));
  encoder.update(4, whole(seen_));
  encoder.value(5, params);
  encoder.dispatch({1, 1, 1}, {32, 1, 1});
}

BufferView Sampler::previous_tokens(uint64_t number) const {
  return {last_tokens_.get(), bytes_of(static_cast<int64_t>((number + 1) % 2) * max_rows_), bytes_of(max_rows_)};
}

}  // namespace ingot::metal
