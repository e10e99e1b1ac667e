#include "backend/cpu/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/ops.h"
#include "backend/cpu/philox.h"
#include "core/error.h"
#include "ingot/step.h"

namespace ingot::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr int64_t kChunk = 128 * kMaximaGroup;  // tokens; a few microseconds of work
constexpr float kGreedyTemperature = 1e-5f;

bool wants_logprob(int32_t kind) {
  return kind == static_cast<int32_t>(RowOutput::Kind::logprobs) ||
         kind == static_cast<int32_t>(RowOutput::Kind::score);
}
bool chooses_token(int32_t kind) {
  return kind == static_cast<int32_t>(RowOutput::Kind::token) ||
         kind == static_cast<int32_t>(RowOutput::Kind::logprobs);
}

struct ChunkStats {
  float best;
  bool nan;
  double sum;  // of exp(logit - best), when the row wants a logprob
};

}  // namespace

struct Sampler::Candidate {
  float value;
  int32_t id;
  float weight;

  // Most likely first, ties to the lower id.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  }
};

struct Sampler::Scratch {
  float* values;          // [vocab] processed logits
  float* weights;         // [vocab]
  float* maxima;          // [groups] of `values`
  float* sorted_maxima;   // [groups]
  int32_t* seen;          // [vocab], all zero between rows
  Candidate* candidates;  // [vocab] in order of ids
  Candidate* selection;   // [vocab]
};

struct Sampler::RowStats {
  const float* maxima;
  float best;
  bool nan;
  double sum;
};

namespace {
size_t worker_bytes_for(int64_t vocab, int64_t groups, size_t candidate) {
  return align_up(static_cast<size_t>(vocab) * (3 * sizeof(float) + 2 * candidate) +
                      static_cast<size_t>(2 * groups) * sizeof(float),
                  4096) +
         4096;
}
int64_t groups_of(int64_t vocab) { return (vocab + kMaximaGroup - 1) / kMaximaGroup; }
}  // namespace

size_t Sampler::bytes(const SamplerLayout& layout, int workers) {
  return static_cast<size_t>(layout.slots) * static_cast<size_t>(layout.max_tokens + 2) * sizeof(int32_t) +
         worker_bytes_for(layout.vocab, groups_of(layout.vocab), sizeof(Candidate)) * static_cast<size_t>(workers);
}

Sampler::Sampler(const SamplerLayout& layout, const Kernels& kernels, int workers)
    : layout_(layout),
      kernels_(kernels),
      groups_(groups_of(layout.vocab)),
      chunks_((layout.vocab + kChunk - 1) / kChunk) {
  history_ = Pages(static_cast<size_t>(layout.slots * layout.max_tokens) * sizeof(int32_t));
  counts_ = Pages(static_cast<size_t>(layout.slots) * 2 * sizeof(int32_t));
  worker_bytes_ = worker_bytes_for(layout.vocab, groups_, sizeof(Candidate));
  worker_memory_ = Pages(worker_bytes_ * static_cast<size_t>(workers));
}

void Sampler::create_rows(int64_t rows) {
  max_rows_ = rows;
  maxima_ = Pages(static_cast<size_t>(rows * groups_) * sizeof(float));
  chunk_stats_ = Pages(static_cast<size_t>(rows * chunks_) * sizeof(ChunkStats));
  last_tokens_ = Pages(static_cast<size_t>(rows) * 2 * sizeof(int32_t));
}

Sampler::Scratch Sampler::scratch(int worker) const {
  std::byte* at = worker_memory_.data() + worker_bytes_ * static_cast<size_t>(worker);
  const auto take = [&at](size_t bytes) {
    std::byte* p = at;
    at += align_up(bytes, 16);
    return p;
  };
  const size_t vocab = static_cast<size_t>(layout_.vocab), groups = static_cast<size_t>(groups_);
  Scratch s;
  s.values = reinterpret_cast<float*>(take(vocab * sizeof(float)));
  s.weights = reinterpret_cast<float*>(take(vocab * sizeof(float)));
  s.maxima = reinterpret_cast<float*>(take(groups * sizeof(float)));
  s.sorted_maxima = reinterpret_cast<float*>(take(groups * sizeof(float)));
  s.seen = reinterpret_cast<int32_t*>(take(vocab * sizeof(int32_t)));
  s.candidates = reinterpret_cast<Candidate*>(take(vocab * sizeof(Candidate)));
  s.selection = reinterpret_cast<Candidate*>(take(vocab * sizeof(Candidate)));
  return s;
}

void Sampler::reset_slots(const StepView& view) {
  for (int32_t i = 0; i < view.step().resets; ++i) {
    const int32_t* words = view.resets() + 4 * i;
    const int64_t prompt = std::min<int64_t>(words[2], layout_.max_tokens);
    const int64_t output = std::min<int64_t>(words[3], layout_.max_tokens - prompt);
    std::memcpy(history_.as<int32_t>() + words[0] * layout_.max_tokens, view.pool() + words[1],
                static_cast<size_t>(prompt + output) * sizeof(int32_t));
    counts_.as<int32_t>()[2 * words[0]] = static_cast<int32_t>(prompt);
    counts_.as<int32_t>()[2 * words[0] + 1] = static_cast<int32_t>(output);
  }
}

int32_t Sampler::previous_token(uint64_t step, int64_t row) const {
  if (row >= max_rows_) return 0;
  return std::max(0, tokens(step + 1)[row]);
}

void run(const SampleOp& op, const Job& job) {
  job.device.sampler->sample(job.device.floats(op.logits), job.step.view, *job.step.layout, job.step.output,
                             job.step.number, job.worker);
}

void Sampler::sample(const float* logits, const StepView& view, const OutputLayout& layout, std::byte* output,
                     uint64_t step, Worker& worker) {
  const int64_t rows = view.step().samples;
  const StagedSampling* params = view.sampling();
  worker.share(rows * chunks_, [&](int64_t task) {
    const int64_t row = task / chunks_;
    chunk_stats(logits + row * layout_.vocab, params[row], row, task % chunks_);
  });
  const Scratch mine = scratch(worker.index());
  worker.share(rows,
               [&](int64_t row) { finish_row(logits + row * layout_.vocab, view, row, layout, output, step, mine); });
  // Histories grow only now, in the order of the rows, so that no row sees a neighbour's token.
  worker.once([&] {
    const int32_t* tokens = reinterpret_cast<const int32_t*>(output + layout.tokens);
    bool drawn = true;  // what a row that continues a draft takes for granted
    for (int64_t row = 0; row < rows; ++row) {
      const StagedSampling& p = params[row];
      const int32_t slot = p.slot;
      drawn = p.draft_count == 0 || (drawn && tokens[row - 1] == view.pool()[p.draft_offset + p.draft_count - 1]);
      if (!drawn || slot < 0 || tokens[row] < 0 || !chooses_token(p.kind)) continue;
      int32_t* counts = counts_.as<int32_t>() + 2 * slot;
      const int64_t used = int64_t{counts[0]} + counts[1];
      if (used >= layout_.max_tokens) continue;
      history_.as<int32_t>()[slot * layout_.max_tokens + used] = tokens[row];
      ++counts[1];
    }
  });
}

void Sampler::chunk_stats(const float* logits, const StagedSampling& params, int64_t row, int64_t chunk) {
  const int64_t begin = chunk * kChunk, n = std::min(kChunk, layout_.vocab - begin);
  float* maxima = maxima_.as<float>() + row * groups_ + begin / kMaximaGroup;
  ChunkStats stats{-kInf, false, 0.0};
  stats.nan = kernels_.group_maxima(logits + begin, n, maxima);
  for (int64_t g = 0; g < groups_of(n); ++g) stats.best = std::max(stats.best, maxima[g]);
  if (wants_logprob(params.kind) && stats.best > -kInf)
    stats.sum = kernels_.exp_row(logits + begin, n, stats.best, 1.0f, kLowest, nullptr);
  chunk_stats_.as<ChunkStats>()[row * chunks_ + chunk] = stats;
}

Sampler::RowStats Sampler::row_stats(int64_t row) const {
  const ChunkStats* chunks = chunk_stats_.as<ChunkStats>() + row * chunks_;
  RowStats stats{maxima_.as<float>() + row * groups_, -kInf, false, 0.0};
  for (int64_t c = 0; c < chunks_; ++c) {
    stats.best = std::max(stats.best, chunks[c].best);
    stats.nan |= chunks[c].nan;
  }
  for (int64_t c = 0; c < chunks_; ++c)
    if (chunks[c].best > -kInf) stats.sum += chunks[c].sum * std::exp(static_cast<double>(chunks[c].best) - stats.best);
  return stats;
}

void Sampler::finish_row(const float* logits, const StepView& view, int64_t row, const OutputLayout& layout,
                         std::byte* output, uint64_t step, const Scratch& scratch) {
  const StagedSampling& params = view.sampling()[row];
  const auto kind = static_cast<RowOutput::Kind>(params.kind);
  const RowStats stats = row_stats(row);
  int32_t token = -1;
  if (chooses_token(params.kind) && !stats.nan) token = choose(logits, params, view.pool(), stats, scratch);
  if (kind == RowOutput::Kind::score) token = params.target;

  float logprob = 0.0f;
  int32_t rank = 0;
  if (wants_logprob(params.kind)) {
    logprob = std::numeric_limits<float>::quiet_NaN();
    if (!stats.nan && token >= 0 && token < layout_.vocab) {
      const float logit = logits[token];
      if (std::abs(stats.best) < kInf)
        logprob = static_cast<float>(static_cast<double>(logit) - stats.best - std::log(stats.sum));
      rank = 1 + static_cast<int32_t>(kernels_.count_greater(logits, layout_.vocab, logit));
    }
  }
  reinterpret_cast<int32_t*>(output + layout.tokens)[row] = token;
  reinterpret_cast<float*>(output + layout.logprobs)[row] = logprob;
  reinterpret_cast<int32_t*>(output + layout.ranks)[row] = rank;
  tokens(step)[row] = token;

  const int64_t count = kind == RowOutput::Kind::token || kind == RowOutput::Kind::full_logits
                            ? 0
                            : std::min<int64_t>({params.top, layout.max_top, layout_.vocab});
  if (count > 0) {
    int32_t* ids = reinterpret_cast<int32_t*>(output + layout.top_ids) + row * layout.max_top;
    float* values = reinterpret_cast<float*>(output + layout.top_values) + row * layout.max_top;
    if (stats.nan) {
      std::fill_n(ids, count, -1);
      std::fill_n(values, count, std::numeric_limits<float>::quiet_NaN());
    } else {
      top(logits, stats.maxima, count, ids, values, scratch);
      if (wants_logprob(params.kind)) {
        const double log_sum = std::log(stats.sum);
        for (int64_t i = 0; i < count; ++i)
          values[i] = static_cast<float>(static_cast<double>(values[i]) - stats.best - log_sum);
      }
    }
  }
  if (kind == RowOutput::Kind::full_logits && params.logits_row >= 0)
    std::memcpy(reinterpret_cast<float*>(output + layout.logits) + params.logits_row * layout.vocab, logits,
                static_cast<size_t>(layout_.vocab) * sizeof(float));
}

int32_t Sampler::argmax(const float* values, const float* maxima, float best) const {
  if (best == -kInf) return -1;
  const int64_t group = std::find(maxima, maxima + groups_, best) - maxima;
  if (group == groups_) return -1;
  const int64_t begin = group * kMaximaGroup;
  return static_cast<int32_t>(std::find(values + begin, values + layout_.vocab, best) - values);
}

int32_t Sampler::choose(const float* logits, const StagedSampling& params, const int32_t* pool, const RowStats& stats,
                        const Scratch& scratch) const {
  const float* values = process(logits, params, pool, scratch);
  const float* maxima = stats.maxima;
  float best = stats.best;
  if (values != logits) {
    if (kernels_.group_maxima(values, layout_.vocab, scratch.maxima)) return -1;
    maxima = scratch.maxima;
    best = *std::max_element(maxima, maxima + groups_);
  }
  if (params.temperature < kGreedyTemperature || !(std::abs(best) < kInf)) return argmax(values, maxima, best);
  return draw(values, maxima, best, params, scratch);
}

// The logits after everything that comes before the temperature: the row itself when nothing is asked for, otherwise
// a changed copy.
const float* Sampler::process(const float* logits, const StagedSampling& params, const int32_t* pool,
                              const Scratch& scratch) const {
  const int32_t* counts = params.slot >= 0 ? counts_.as<int32_t>() + 2 * params.slot : nullptr;
  const bool penalties = counts != nullptr && (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
                                               params.repetition_penalty != 1.0f);
  const int32_t* draft = pool + params.draft_offset;
  const int32_t generated = counts != nullptr ? counts[1] + params.draft_count : 0;
  const bool bars_stops = counts != nullptr && generated < params.min_tokens && params.stop_count > 0;
  if (params.allowed_count == 0 && params.mask_offset < 0 && params.bad_count == 0 && params.bias_count == 0 &&
      !penalties && !bars_stops)
    return logits;

  float* values = scratch.values;
  const int64_t vocab = layout_.vocab;
  if (params.allowed_count > 0) {
    std::fill_n(values, vocab, -kInf);
    const int32_t* ids = pool + params.allowed_offset;
    for (int32_t i = 0; i < params.allowed_count; ++i) values[ids[i]] = logits[ids[i]];
  } else {
    std::memcpy(values, logits, static_cast<size_t>(vocab) * sizeof(float));
  }
  if (params.mask_offset >= 0) {
    const int32_t* words = pool + params.mask_offset;
    for (int64_t begin = 0; begin < vocab; begin += 32) {
      const uint32_t word = static_cast<uint32_t>(words[begin / 32]);
      if (word == ~0u) continue;
      const int64_t end = std::min(begin + 32, vocab);
      for (int64_t i = begin; i < end; ++i)
        if (((word >> (i - begin)) & 1) == 0) values[i] = -kInf;
    }
  }
  const int32_t* bad = pool + params.bad_offset;
  for (int32_t i = 0; i < params.bad_count; ++i) {
    const int32_t prefix = bad[0] - 1;
    const int32_t* ids = bad + 1;
    bad += 1 + bad[0];
    bool matches = prefix == 0;
    if (prefix > 0 && counts != nullptr && prefix <= generated) {
      const int32_t* end = history_.as<int32_t>() + params.slot * layout_.max_tokens + counts[0] + counts[1];
      const int32_t old = std::max(prefix - params.draft_count, 0);  // of the prefix, in the history
      matches = std::equal(ids, ids + old, end - old) &&
                std::equal(ids + old, ids + prefix, draft + params.draft_count - (prefix - old));
    }
    if (matches && prefix >= 0) values[ids[prefix]] = -kInf;
  }
  if (bars_stops)
    for (int32_t i = 0; i < params.stop_count; ++i) values[pool[params.stop_offset + i]] = -kInf;
  for (int32_t i = 0; i < params.bias_count; ++i) {
    const int32_t* pair = pool + params.bias_offset + 2 * i;
    values[pair[0]] += std::bit_cast<float>(pair[1]);
  }
  if (penalties) penalize(params, draft, scratch);
  return values;
}

void Sampler::penalize(const StagedSampling& params, const int32_t* draft, const Scratch& scratch) const {
  const int32_t* ids = history_.as<int32_t>() + params.slot * layout_.max_tokens;
  const int32_t prompt = counts_.as<int32_t>()[2 * params.slot];
  const int32_t old = prompt + counts_.as<int32_t>()[2 * params.slot + 1];
  const int32_t all = old + params.draft_count;
  constexpr int32_t kDone = -1;
  const auto id_at = [&](int32_t i) { return i < old ? ids[i] : draft[i - old]; };
  const auto known = [&](int32_t id) { return id >= 0 && id < layout_.vocab; };
  for (int32_t i = prompt; i < all; ++i)
    if (known(id_at(i))) ++scratch.seen[id_at(i)];
  for (int32_t i = 0; i < all; ++i) {
    const int32_t id = id_at(i);
    if (!known(id)) continue;
    int32_t& occurrences = scratch.seen[id];
    if (occurrences == kDone) continue;
    float& value = scratch.values[id];
    value = value > 0.0f ? value / params.repetition_penalty : value * params.repetition_penalty;
    if (occurrences > 0)
      value = value - params.frequency_penalty * static_cast<float>(occurrences) - params.presence_penalty;
    occurrences = kDone;
  }
  for (int32_t i = 0; i < all; ++i)
    if (known(id_at(i))) scratch.seen[id_at(i)] = 0;
}

// Tokens with value >= limit, in the order of ids.
int64_t Sampler::gather(const float* values, const float* maxima, float limit, Candidate* out) const {
  int64_t n = 0;
  for (int64_t g = 0; g < groups_; ++g) {
    if (!(maxima[g] >= limit)) continue;
    const int64_t end = std::min((g + 1) * kMaximaGroup, layout_.vocab);
    for (int64_t i = g * kMaximaGroup; i < end; ++i)
      if (values[i] >= limit) out[n++] = Candidate{values[i], static_cast<int32_t>(i), 0.0f};
  }
  return n;
}

namespace {
// A value that at least n tokens reach: the n-th largest of the groups' maxima.
float nth_maximum(const float* maxima, int64_t groups, int64_t n, float* scratch) {
  if (n > groups) return kLowest;
  std::copy_n(maxima, groups, scratch);
  std::nth_element(scratch, scratch + (n - 1), scratch + groups, std::greater<>());
  return std::max(scratch[n - 1], kLowest);
}
}  // namespace

void Sampler::top(const float* logits, const float* maxima, int64_t n, int32_t* ids, float* values,
                  const Scratch& scratch) const {
  const int64_t found =
      gather(logits, maxima, nth_maximum(maxima, groups_, n, scratch.sorted_maxima), scratch.selection);
  const int64_t kept = std::min(n, found);
  std::partial_sort(scratch.selection, scratch.selection + kept, scratch.selection + found);
  for (int64_t i = 0; i < n; ++i) {
    ids[i] = i < kept ? scratch.selection[i].id : -1;
    values[i] = i < kept ? scratch.selection[i].value : -kInf;
  }
}

int32_t Sampler::draw(const float* values, const float* maxima, float best, const StagedSampling& params,
                      const Scratch& scratch) const {
  const int64_t vocab = layout_.vocab;
  const float scale = 1.0f / params.temperature;
  const float floor = params.min_p > 0.0f ? std::log(params.min_p) : kLowest;  // of (value - best) * scale
  const double uniform = philox_uniform(params.seed, static_cast<uint64_t>(params.position));
  const bool top_k = params.top_k > 0 && params.top_k < vocab;
  const bool top_p = params.top_p < 1.0f;

  if (!top_k && !top_p) {
    double total = 0.0;
    double* sums = reinterpret_cast<double*>(scratch.selection);  // [chunks]
    for (int64_t c = 0; c < chunks_; ++c) {
      const int64_t begin = c * kChunk;
      sums[c] = kernels_.exp_row(values + begin, std::min(kChunk, vocab - begin), best, scale, floor, nullptr);
      total += sums[c];
    }
    double left = uniform * total;
    int64_t chunk = 0;
    while (chunk + 1 < chunks_ && left >= sums[chunk]) left -= sums[chunk++];
    while (chunk > 0 && sums[chunk] == 0.0) --chunk;  // rounding took us past the last token with any weight
    const int64_t begin = chunk * kChunk, n = std::min(kChunk, vocab - begin);
    kernels_.exp_row(values + begin, n, best, scale, floor, scratch.weights);
    int32_t token = -1;
    for (int64_t i = 0; i < n; ++i) {
      if (scratch.weights[i] == 0.0f) continue;
      token = static_cast<int32_t>(begin + i);
      left -= scratch.weights[i];
      if (left < 0.0) break;
    }
    return token;
  }

  Candidate* candidates = scratch.candidates;  // in order of ids
  Candidate* selection = scratch.selection;    // those among which the last token kept is searched
  int64_t listed = 0, n = 0;
  double want = 0.0;                                                // weight to be reached in the selection
  Candidate cut{-kInf, std::numeric_limits<int32_t>::max(), 0.0f};  // the last token kept
  if (top_k) {
    n = listed = gather(values, maxima, nth_maximum(maxima, groups_, params.top_k, scratch.sorted_maxima), candidates);
    for (int64_t i = 0; i < listed; ++i) {
      const float x = (candidates[i].value - best) * scale;
      candidates[i].weight = x >= floor ? std::exp(x) : 0.0f;
    }
    std::copy_n(candidates, listed, selection);
    if (n > params.top_k) {
      std::nth_element(selection, selection + (params.top_k - 1), selection + n);
      n = params.top_k;
      cut = selection[n - 1];
    }
    for (int64_t i = 0; i < n; ++i) want += selection[i].weight;
    want *= params.top_p;
  } else {
    want = params.top_p * kernels_.exp_row(values, vocab, best, scale, floor, scratch.weights);
    // Bisect the depth under the best: tokens above `upper` are kept, below `lower` they are not.
    float upper = 0.0f, lower = -88.0f;
    double above = 0.0;  // weight above `upper`
    for (int i = 0; i < 10; ++i) {
      const float middle = 0.5f * (upper + lower);
      const double sum = kernels_.sum_above(scratch.weights, vocab, std::exp(middle));
      if (sum >= want) {
        lower = middle;
      } else {
        upper = middle;
        above = sum;
      }
    }
    const float least = lower > -88.0f ? std::exp(lower) : 0.0f, sure = upper < 0.0f ? std::exp(upper) : kInf;
    const float limit = best + (lower - 0.01f) / scale;  // a little lower: the weights decide
    const int64_t near = gather(values, maxima, least > 0.0f ? std::max(limit, kLowest) : kLowest, candidates);
    for (int64_t i = 0; i < near; ++i) {
      Candidate c = candidates[i];
      c.weight = scratch.weights[c.id];
      if (c.weight < least) continue;
      candidates[listed++] = c;
      if (c.weight < sure) selection[n++] = c;
    }
    want -= above;
  }
  if (top_p && n > 0) {
    // Quickselect by weight: where the running sum, most likely first, reaches what is wanted.
    Candidate* begin = selection;
    Candidate* end = selection + n;
    while (end - begin > 1) {
      Candidate* middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end);
      double sum = 0.0;
      for (Candidate* c = begin; c < middle; ++c) sum += c->weight;
      if (sum >= want) {
        end = middle;
      } else {
        want -= sum;
        begin = middle;
      }
    }
    if (*begin < cut) cut = *begin;
  }
  const auto kept = [&](const Candidate& c) { return c.weight > 0.0f && !(cut < c); };
  double mass = 0.0;
  for (int64_t i = 0; i < listed; ++i)
    if (kept(candidates[i])) mass += candidates[i].weight;
  double left = uniform * mass;
  int32_t token = -1;
  for (int64_t i = 0; i < listed; ++i) {
    if (!kept(candidates[i])) continue;
    token = candidates[i].id;
    left -= candidates[i].weight;
    if (left < 0.0) break;
  }
  return token;
}

}  // namespace ingot::cpu
