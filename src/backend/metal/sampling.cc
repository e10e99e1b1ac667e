#include "backend/metal/sampling.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "ingot/step.h"

namespace ingot::metal {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kChunk = 4096;
constexpr int64_t kMaxTop = 256;
constexpr size_t kChunkBytes = 16;
constexpr int64_t kLeastWorkRows = 64;

// The kernels know this struct field by field.
static_assert(sizeof(StagedSampling) == 104 && offsetof(StagedSampling, seed) == 32 &&
              offsetof(StagedSampling, logits_row) == 96);

struct OutputParams {
  uint32_t rows, chunks, max_top, max_tokens;
  uint64_t tokens, logprobs, ranks, top_ids, top_values, logits;
  uint32_t last_offset, vocab;
};

int64_t chunks_of(int64_t vocab) { return (vocab + kChunk - 1) / kChunk; }
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
  counts_ = memory.new_private(bytes_of(2 * layout.slots), "work sampler counts");
  seen_ = memory.new_private(bytes_of(layout.slots * layout.vocab), "work sampler seen");
  memory.fill_zero({counts_.get(), 0, bytes_of(2 * layout.slots)});
  memory.fill_zero({seen_.get(), 0, bytes_of(layout.slots * layout.vocab)});
}

void Sampler::create_rows(const OutputLayout& output, Memory& memory) {
  if (output.max_top > kMaxTop)
    throw_error(ErrorKind::declined, "gpu: {} alternatives a row, the kernels give at most {}", output.max_top,
                kMaxTop);
  output_ = output;
  max_rows_ = output.max_rows;
  work_rows_ = std::min<int64_t>(work_rows_of(layout_), max_rows_);
  work_ = memory.new_private(bytes_of(work_rows_ * layout_.vocab), "work sampler logits");
  chunks_ = memory.new_private(static_cast<size_t>(max_rows_ * chunks_of(layout_.vocab)) * kChunkBytes,
                               "work sampler statistics");
  last_tokens_ = memory.new_private(bytes_of(2 * max_rows_), "work last tokens");
  memory.fill_zero({last_tokens_.get(), 0, bytes_of(2 * max_rows_)});
}

void Sampler::prepare(const StagedStep& step, const std::byte* stage) {
  int64_t processed = 0;
  for (int32_t r = 0; r < step.samples; ++r) {
    StagedSampling params;
    std::memcpy(&params, stage + step.sampling + static_cast<size_t>(r) * sizeof(params), sizeof(params));
    processed += may_process(params) ? 1 : 0;
  }
  if (processed > work_rows_)
    throw_error(ErrorKind::bad_call,
                "gpu: {} rows with penalties, biases or masks in one step, there is room for {}; send fewer", processed,
                work_rows_);
  processes_ = processed > 0;
}

void Sampler::reset_slots(Context& context, const StepView& input) {
  Encoder& encoder = context.encoder;
  const uint32_t limits[2] = {static_cast<uint32_t>(layout_.max_tokens), static_cast<uint32_t>(layout_.vocab)};
  encoder.use("sample_reset");
  encoder.read(0, input.resets());
  encoder.read(1, input.pool());
  encoder.update(2, {history_.get(), 0, bytes_of(layout_.slots * layout_.max_tokens)});
  encoder.update(3, {counts_.get(), 0, bytes_of(2 * layout_.slots)});
  encoder.update(4, {seen_.get(), 0, bytes_of(layout_.slots * layout_.vocab)});
  encoder.value(5, limits);
  encoder.dispatch({static_cast<NS::UInteger>(input.step().resets), 1, 1}, {kThreads, 1, 1});
}

void Sampler::sample(Context& context, const StepView& input, BufferView logits, BufferView output, uint64_t number) {
  const NS::UInteger rows = static_cast<NS::UInteger>(input.step().samples);
  const int64_t chunks = chunks_of(layout_.vocab);
  OutputParams params{};
  params.rows = static_cast<uint32_t>(rows);
  params.chunks = static_cast<uint32_t>(chunks);
  params.max_top = static_cast<uint32_t>(output_.max_top);
  params.max_tokens = static_cast<uint32_t>(layout_.max_tokens);
  params.vocab = static_cast<uint32_t>(layout_.vocab);
  params.tokens = output_.tokens;
  params.logprobs = output_.logprobs;
  params.ranks = output_.ranks;
  params.top_ids = output_.top_ids;
  params.top_values = output_.top_values;
  params.logits = output_.logits;
  params.last_offset = static_cast<uint32_t>(static_cast<int64_t>(number % 2) * max_rows_);

  const BufferView history{history_.get(), 0, bytes_of(layout_.slots * layout_.max_tokens)};
  const BufferView counts{counts_.get(), 0, bytes_of(2 * layout_.slots)};
  const BufferView seen{seen_.get(), 0, bytes_of(layout_.slots * layout_.vocab)};
  const BufferView work{work_.get(), 0, bytes_of(work_rows_ * layout_.vocab)};
  const BufferView statistics{chunks_.get(), 0, static_cast<size_t>(max_rows_ * chunks) * kChunkBytes};

  Encoder& encoder = context.encoder;
  encoder.use("sample_stats");
  encoder.read(0, logits);
  encoder.read(1, input.sampling());
  encoder.write(2, statistics);
  encoder.write(3, output);
  encoder.value(4, params);
  encoder.dispatch({static_cast<NS::UInteger>(chunks), rows, 1}, {kThreads, 1, 1});

  if (processes_ || encoder.rehearsing()) {
    encoder.use("sample_process");
    encoder.read(0, logits);
    encoder.read(1, input.sampling());
    encoder.read(2, input.pool());
    encoder.read(3, history);
    encoder.read(4, counts);
    encoder.read(5, seen);
    encoder.write(6, work);
    encoder.value(7, params);
    encoder.dispatch({rows, 1, 1}, {kThreads, 1, 1});
  }

  encoder.use("sample_rows");
  encoder.read(0, logits);
  encoder.read(1, input.sampling());
  encoder.read(2, statistics);
  encoder.read(3, work);
  encoder.read(4, counts);
  encoder.write(5, output);
  encoder.write(6, {last_tokens_.get(), 0, bytes_of(2 * max_rows_)});
  encoder.value(7, params);
  encoder.dispatch({rows, 1, 1}, {kThreads, 1, 1});

  encoder.use("sample_commit");
  encoder.read(0, input.sampling());
  encoder.read(1, output);
  encoder.update(2, history);
  encoder.update(3, counts);
  encoder.update(4, seen);
  encoder.value(5, params);
  encoder.dispatch({1, 1, 1}, {32, 1, 1});
}

BufferView Sampler::previous_tokens(uint64_t number) const {
  return {last_tokens_.get(), bytes_of(static_cast<int64_t>((number + 1) % 2) * max_rows_), bytes_of(max_rows_)};
}

}  // namespace ingot::metal
