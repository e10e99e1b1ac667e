#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/half.h"
#include "formats/block_quant.h"
#include "reference_sampling.h"

namespace ingot::test {

// ---- load ----

size_t ReferenceBackend::add_matrix(const MatrixSpec& spec) {
  Matrix m{spec.rows, spec.cols, {}};
  std::vector<float> row(static_cast<size_t>(spec.cols));
  for (const MatrixPart& part : spec.parts) {
    const int64_t rows = part.tensor->shape[0];
    const size_t row_bytes = dtype_bytes(part.tensor->dtype, static_cast<size_t>(spec.cols));
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* source = part.tensor->data.data() + static_cast<size_t>(part.source_row(r)) * row_bytes;
      dequantize(part.tensor->dtype, source, row.size(), row.data());
      m.values.insert(m.values.end(), row.begin(), row.end());
    }
  }
  weights_.push_back(std::move(m));
  return matrix_bytes(spec);
}

size_t ReferenceBackend::add_vector(const std::string&, std::span<const float> values) {
  weights_.push_back({1, static_cast<int64_t>(values.size()), std::vector<double>(values.begin(), values.end())});
  return values.size() * 8;
}

void ReferenceBackend::make_kv_cache(const KvLayout& layout) {
  const size_t rows = kv_rows(layout);
  const KvNumbers zeros{std::vector<float>(rows * static_cast<size_t>(layout.head_size)),
                        std::vector<float>(rows, 1.0f)};
  cache_.assign(static_cast<size_t>(2 * layout.layers), zeros);
}

void ReferenceBackend::make_sampler(const SamplerLayout& layout) { slots_.resize(static_cast<size_t>(layout.slots)); }

std::vector<std::span<std::byte>> ReferenceBackend::make_io(size_t stage_bytes, const OutputLayout& output, int) {
  for (int ring = 0; ring < 2; ++ring) {
    stage_[ring].resize(stage_bytes);
    output_[ring].resize(output.bytes);
  }
  return {stage_[0], stage_[1]};
}

void ReferenceBackend::copy_to(Region region, std::span<const std::byte> bytes) {
  std::memcpy(at(region), bytes.data(), bytes.size());
}
void ReferenceBackend::copy_from(Region region, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), at(region), bytes.size());
}

void ReferenceBackend::copy_to_cache(int64_t layer, bool value, std::span<const std::byte> bytes) {
  cache_[2 * static_cast<size_t>(layer) + value] = decode_kv(*has_.kv, bytes);
}
void ReferenceBackend::copy_from_cache(int64_t layer, bool value, std::span<std::byte> bytes) {
  const std::vector<std::byte> all = encode_kv(*has_.kv, cache_[2 * static_cast<size_t>(layer) + value]);
  std::memcpy(bytes.data(), all.data(), all.size());
}

ReferenceBackend::CachedRow ReferenceBackend::cached(int64_t layer, bool value, int64_t kv_head, int64_t slot) {
  KvNumbers& part = cache_[2 * static_cast<size_t>(layer) + value];
  const int64_t row =
      (slot / has_.kv->block_size * has_.kv->kv_heads + kv_head) * has_.kv->block_size + slot % has_.kv->block_size;
  return {{part.elements.data() + row * has_.kv->head_size, static_cast<size_t>(has_.kv->head_size)},
          part.scales[static_cast<size_t>(row)]};
}

void ReferenceBackend::store_row(CachedRow row, std::span<const float> values) const {
  float largest = 0.0f;
  for (float x : values) largest = std::max(largest, std::abs(x));
  if (has_.kv->dtype == KvType::int8) row.scale = largest / 127.0f;
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    switch (has_.kv->dtype) {
      case KvType::f32: row.elements[i] = x; break;
      case KvType::f16: row.elements[i] = f16_to_f32(f32_to_f16(x)); break;
      case KvType::bf16: row.elements[i] = bf16_to_f32(f32_to_bf16(x)); break;
      case KvType::int8: row.elements[i] = std::nearbyint(x * inverse); break;
    }
  }
}

// ---- a step ----

std::vector<std::span<std::byte>> ReferenceBackend::make_host_blocks(int64_t count, size_t bytes) {
  host_blocks_.assign(static_cast<size_t>(count), {});
  host_bytes_.assign(static_cast<size_t>(count) * bytes, std::byte{0});
  std::vector<std::span<std::byte>> spans;
  for (size_t i = 0; i < host_blocks_.size(); ++i) spans.emplace_back(host_bytes_.data() + i * bytes, bytes);
  return spans;
}

void ReferenceBackend::run(const PrepareOp&) {
  const auto each_row = [this](auto f) {
    for (int64_t layer = 0; layer < has_.kv->layers; ++layer)
      for (bool value : {false, true})
        for (int64_t h = 0; h < has_.kv->kv_heads; ++h)
          for (int64_t offset = 0; offset < has_.kv->block_size; ++offset)
            f([=, this](int64_t block) { return cached(layer, value, h, block * has_.kv->block_size + offset); });
  };
  for (int32_t i = 0; i < has_.step.saves; ++i) {
    const int32_t* pair = staged<int32_t>(has_.step.block_saves) + 2 * i;
    std::vector<float>& kept = host_blocks_[static_cast<size_t>(pair[1])];
    kept.clear();
    each_row([&](auto row) {
      const CachedRow from = row(pair[0]);
      kept.insert(kept.end(), from.elements.begin(), from.elements.end());
      kept.push_back(from.scale);
    });
  }
  for (int32_t i = 0; i < has_.step.loads; ++i) {
    const int32_t* pair = staged<int32_t>(has_.step.block_loads) + 2 * i;
    const float* kept = host_blocks_[static_cast<size_t>(pair[0])].data();
    each_row([&](auto row) {
      const CachedRow to = row(pair[1]);
      kept = std::copy_n(kept, to.elements.size(), to.elements.begin()) - to.elements.begin() + kept;
      to.scale = *kept++;
    });
  }
  for (int32_t i = 0; i < has_.step.zeros; ++i)
    each_row([&](auto row) {
      const CachedRow at = row(staged<int32_t>(has_.step.block_zeros)[i]);
      std::fill(at.elements.begin(), at.elements.end(), 0.0f);
      if (has_.kv->dtype == KvType::int8) at.scale = 0.0f;
    });
  for (int32_t i = 0; i < has_.step.copies; ++i) {
    const int32_t* pair = staged<int32_t>(has_.step.block_copies) + 2 * i;
    each_row([&](auto row) {
      const CachedRow from = row(pair[0]), to = row(pair[1]);
      std::copy(from.elements.begin(), from.elements.end(), to.elements.begin());
      to.scale = from.scale;
    });
  }
  for (int32_t i = 0; i < has_.step.resets; ++i) {
    const int32_t* words = staged<int32_t>(has_.step.reset_words) + 4 * i;
    const int32_t* ids = staged<int32_t>(has_.step.pool) + words[1];
    Slot& slot = slots_[static_cast<size_t>(words[0])];
    slot.prompt.assign(ids, ids + words[2]);
    slot.output.assign(ids + words[2], ids + words[2] + words[3]);
  }
}

void ReferenceBackend::run(const EmbedOp& op) {
  const Matrix& table = weight(op.table);
  for (int64_t t = 0; t < has_.step.tokens; ++t) {
    int64_t token = staged<int32_t>(has_.step.token_ids)[t];
    if (token < 0) token = sampled_[static_cast<size_t>(-1 - token)];
    for (int64_t i = 0; i < table.cols; ++i) {
      double x = table.values[static_cast<size_t>(token * table.cols + i)] * op.scale;
      if (op.position_table) {
        const int64_t position = staged<int32_t>(has_.step.positions)[t];
        x += weight(op.position_table).values[static_cast<size_t>(position * table.cols + i)];
      }
      at(op.out)[t * table.cols + i] = static_cast<float>(x);
    }
  }
}

void ReferenceBackend::run(const RopeTableOp& op) {
  const std::vector<double>& freqs = weight(op.inv_freq).values;
  for (int64_t t = 0; t < has_.step.tokens; ++t)
    for (size_t i = 0; i < freqs.size(); ++i) {
      const double angle = staged<int32_t>(has_.step.positions)[t] * freqs[i];
      float* out = at(op.out) + (static_cast<size_t>(t) * freqs.size() + i) * 2;
      out[0] = static_cast<float>(std::cos(angle) * op.factor);
      out[1] = static_cast<float>(std::sin(angle) * op.factor);
    }
}

void ReferenceBackend::run(const NormOp& op) {
  for (int64_t r = 0; r < op.rows; ++r) {
    const float* in = at(op.in) + r * op.dim;
    double mean = 0.0, squares = 0.0;
    if (op.kind == NormKind::layer) {
      for (int64_t i = 0; i < op.dim; ++i) mean += in[i];
      mean /= static_cast<double>(op.dim);
    }
    for (int64_t i = 0; i < op.dim; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(op.dim) + op.eps);
    std::vector<double> out(static_cast<size_t>(op.dim));
    for (int64_t i = 0; i < op.dim; ++i)
      out[static_cast<size_t>(i)] =
          (in[i] - mean) * scale * weight(op.weight).values[static_cast<size_t>(i)] + bias(op.bias, i);
    if (op.f32_copy.bytes > 0) std::copy(out.begin(), out.end(), at(op.f32_copy) + r * op.dim);
    float* to = at(op.out) + r * op.stride() + op.out_column;
    for (int64_t i = 0; i < op.dim; ++i)
      to[i] = static_cast<float>(out[static_cast<size_t>(i)] + (op.accumulate ? to[i] : 0.0));
  }
}

namespace {
double activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu: return x / (1.0 + std::exp(-x));
    case ActivationKind::gelu: return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0.0;
}
}  // namespace

void ReferenceBackend::run(const LinearOp& op) {
  const Matrix& w = weight(op.weight);
  const auto product = [&](WeightId id, WeightId bias_id, int64_t row, int64_t n) {
    double sum = bias(bias_id, n);
    for (int64_t k = 0; k < w.cols; ++k)
      sum += at(op.in)[row * w.cols + k] * weight(id).values[static_cast<size_t>(n * w.cols + k)];
    return sum;
  };
  for (int64_t r = 0; r < op.rows; ++r)
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = product(op.weight, op.bias, r, n);
      if (op.activation) sum = activate(*op.activation, sum);
      if (op.up) sum *= product(op.up, op.up_bias, r, n);
      float& out = at(op.out)[r * w.rows + n];
      out = static_cast<float>(op.accumulate ? out + sum : sum);
    }
}

// ---- experts ----

void ReferenceBackend::run(const RouteOp& op) {
  const ExpertRoute& r = op.route;
  std::vector<std::pair<int32_t, int32_t>> sorted;  // expert, pair
  for (int64_t row = 0; row < r.rows; ++row) {
    const float* logits = at(op.logits) + row * r.experts;
    std::vector<double> p(static_cast<size_t>(r.experts));
    double sum = 0, chosen = 0;
    for (size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(static_cast<double>(logits[e]));
    std::vector<size_t> ranks(p.size());
    std::iota(ranks.begin(), ranks.end(), size_t{0});
    std::stable_sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    for (int64_t k = 0; k < r.per_token; ++k) chosen += p[ranks[static_cast<size_t>(k)]];
    for (int64_t k = 0; k < r.per_token; ++k) {
      const int64_t pair = row * r.per_token + k;
      const size_t expert = ranks[static_cast<size_t>(k)];
      words(r.ids)[pair] = static_cast<int32_t>(expert);
      at(r.weights)[pair] = static_cast<float>(p[expert] / (op.normalize ? chosen : sum));
      sorted.push_back({static_cast<int32_t>(expert), static_cast<int32_t>(pair)});
    }
  }
  std::sort(sorted.begin(), sorted.end());
  std::fill_n(words(r.starts), r.experts + 1, 0);
  for (size_t i = 0; i < sorted.size(); ++i) {
    words(r.order)[i] = sorted[i].second;
    words(r.places)[sorted[i].second] = static_cast<int32_t>(i);
    for (int64_t e = sorted[i].first + 1; e <= r.experts; ++e) ++words(r.starts)[e];
  }
}

void ReferenceBackend::run(const ExpertLinearOp& op) {
  const ExpertRoute& r = op.route;
  const Matrix& w = weight(op.weight);
  const int64_t outputs = w.rows / r.experts;
  for (int64_t i = 0; i < r.pairs(); ++i) {
    const int32_t pair = words(r.order)[i];
    const float* x = at(op.in) + (op.up ? pair / r.per_token : i) * w.cols;
    for (int64_t n = 0; n < outputs; ++n) {
      const int64_t row = words(r.ids)[pair] * outputs + n;
      const auto product = [&](WeightId id) {
        double sum = 0;
        for (int64_t k = 0; k < w.cols; ++k) sum += x[k] * weight(id).values[static_cast<size_t>(row * w.cols + k)];
        return sum;
      };
      const double sum = product(op.weight);
      at(op.out)[i * outputs + n] = static_cast<float>(op.up ? activate(op.activation, sum) * product(op.up) : sum);
    }
  }
}

void ReferenceBackend::run(const ExpertSumOp& op) {
  const ExpertRoute& r = op.route;
  for (int64_t row = 0; row < r.rows; ++row)
    for (int64_t i = 0; i < op.dim; ++i) {
      double sum = at(op.out)[row * op.dim + i];
      for (int64_t pair = row * r.per_token; pair < (row + 1) * r.per_token; ++pair)
        sum += static_cast<double>(at(r.weights)[pair]) * at(op.in)[words(r.places)[pair] * op.dim + i];
      at(op.out)[row * op.dim + i] = static_cast<float>(sum);
    }
}

// ---- attention ----

// One head of q or k, normalized when asked for, and rotated.
std::vector<double> ReferenceBackend::rotated(const float* head, const AttentionShape& shape, const float* rope,
                                              WeightId norm_weight, float eps) const {
  std::vector<double> x(head, head + shape.head_size);
  if (norm_weight) {
    double squares = 0.0;
    for (double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight(norm_weight).values[i];
  }
  const size_t half = static_cast<size_t>(shape.rope_dims / 2);
  for (size_t i = 0; i < half; ++i) {
    const double c = rope[2 * i], s = rope[2 * i + 1];
    const double a = x[i], b = x[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
  return x;
}

void ReferenceBackend::write_kv(int64_t layer, const AttentionShape& shape, const float* qkv, const float* rope,
                                WeightId k_norm, float eps, int64_t row) {
  const int64_t slot = staged<int64_t>(has_.step.slots)[row];
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    const float* k = qkv + (shape.heads + h) * shape.head_size;
    const float* v = k + shape.kv_heads * shape.head_size;
    const std::vector<double> key = rotated(k, shape, rope, k_norm, eps);
    store_row(cached(layer, false, h, slot), std::vector<float>(key.begin(), key.end()));
    store_row(cached(layer, true, h, slot), {v, static_cast<size_t>(shape.head_size)});
  }
}

void ReferenceBackend::attend(int64_t layer, const AttentionShape& shape, int64_t seq, int64_t row, int64_t head,
                              const std::vector<double>& q, float* out) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t position = staged<int32_t>(has_.step.positions)[row];
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : 0;
  const int32_t* blocks = staged<int32_t>(has_.step.block_table) + seq * has_.step.max_blocks;
  const auto slot_of = [&](int64_t p) {
    return blocks[p / has_.kv->block_size] * has_.kv->block_size + p % has_.kv->block_size;
  };

  std::vector<double> scores;
  for (int64_t p = first; p <= position; ++p) {
    double score = 0.0;
    const CachedRow key = cached(layer, false, kv_head, slot_of(p));
    for (size_t d = 0; d < q.size(); ++d) score += q[d] * key.elements[d];
    scores.push_back(score * key.scale * shape.scale);
  }
  const double best = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (double& s : scores) sum += s = std::exp(s - best);
  std::vector<double> sums(static_cast<size_t>(shape.head_size), 0.0);
  for (int64_t p = first; p <= position; ++p) {
    const CachedRow value = cached(layer, true, kv_head, slot_of(p));
    const double weight = scores[static_cast<size_t>(p - first)] * value.scale;
    for (size_t d = 0; d < sums.size(); ++d) sums[d] += weight * value.elements[d];
  }
  for (size_t d = 0; d < sums.size(); ++d)
    out[head * shape.head_size + static_cast<int64_t>(d)] = static_cast<float>(sums[d] / sum);
}

void ReferenceBackend::run(const AttentionOp& op) {
  switch (op.part) {
    case AttentionOp::Part::decode: return decode_attention(op);
    case AttentionOp::Part::prefill_write: return prefill_write(op);
    case AttentionOp::Part::prefill: return prefill_attention(op);
  }
}

void ReferenceBackend::decode_attention(const AttentionOp& op) {
  const AttentionShape& shape = op.shape;
  const int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  for (int64_t row = 0; row < has_.step.decode_rows; ++row) {
    const float* qkv = at(op.qkv) + row * width;
    const float* rope = at(op.rope) + row * shape.rope_dims;
    write_kv(op.layer, shape, qkv, rope, op.k_norm, op.norm_eps, row);
    for (int64_t h = 0; h < shape.heads; ++h)
      attend(op.layer, shape, row, row, h, rotated(qkv + h * shape.head_size, shape, rope, op.q_norm, op.norm_eps),
             at(op.out) + row * shape.heads * shape.head_size);
  }
}

void ReferenceBackend::prefill_write(const AttentionOp& op) {
  const AttentionShape& shape = op.shape;
  const int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  for (int64_t row = has_.step.decode_rows; row < has_.step.tokens; ++row) {
    float* qkv = at(op.qkv) + row * width;
    const float* rope = at(op.rope) + row * shape.rope_dims;
    write_kv(op.layer, shape, qkv, rope, op.k_norm, op.norm_eps, row);
    for (int64_t h = 0; h < shape.heads; ++h) {
      const std::vector<double> q = rotated(qkv + h * shape.head_size, shape, rope, op.q_norm, op.norm_eps);
      std::copy(q.begin(), q.end(), qkv + h * shape.head_size);
    }
  }
}

void ReferenceBackend::prefill_attention(const AttentionOp& op) {
  const AttentionShape& shape = op.shape;
  const int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const int32_t* start = staged<int32_t>(has_.step.query_start);
  for (int64_t seq = has_.step.decode_rows; seq < has_.step.seqs; ++seq)
    for (int64_t row = start[seq]; row < start[seq + 1]; ++row)
      for (int64_t h = 0; h < shape.heads; ++h) {
        const float* q = at(op.qkv) + row * width + h * shape.head_size;
        attend(op.layer, shape, seq, row, h, std::vector<double>(q, q + shape.head_size),
               at(op.out) + row * shape.heads * shape.head_size);
      }
}

// ---- the end of a step ----

void ReferenceBackend::run(const GatherRowsOp& op) {
  for (int64_t r = 0; r < has_.step.samples; ++r)
    std::copy_n(at(op.in) + staged<int32_t>(has_.step.sample_rows)[r] * op.dim, op.dim, at(op.out) + r * op.dim);
}

void ReferenceBackend::run(const SampleOp& op) {
  sampled_.clear();
  for (int64_t r = 0; r < has_.step.samples; ++r) sample_row(at(op.logits) + r * op.vocab, op.vocab, r);
  for (int64_t r = 0; r < has_.step.samples; ++r) {
    const StagedSampling& params = staged<StagedSampling>(has_.step.sampling)[r];
    const auto kind = static_cast<RowOutput::Kind>(params.kind);
    const bool chosen = kind == RowOutput::Kind::token || kind == RowOutput::Kind::logprobs;
    const int32_t token = sampled_[static_cast<size_t>(r)];
    if (chosen && params.slot >= 0 && token >= 0) slots_[static_cast<size_t>(params.slot)].output.push_back(token);
  }
}

void ReferenceBackend::sample_row(const float* logits, int64_t vocab, int64_t row) {
  const StagedSampling& params = staged<StagedSampling>(has_.step.sampling)[row];
  const Slot none;
  const Slot& slot = params.slot >= 0 ? slots_[static_cast<size_t>(params.slot)] : none;
  const ReferenceRow result = reference_sample({logits, static_cast<size_t>(vocab)}, params,
                                               staged<int32_t>(has_.step.pool), slot.prompt, slot.output);
  std::byte* out = output_[has_.step.ring].data();
  reinterpret_cast<int32_t*>(out + has_.output.tokens)[row] = result.token;
  reinterpret_cast<float*>(out + has_.output.logprobs)[row] = static_cast<float>(result.logprob);
  reinterpret_cast<int32_t*>(out + has_.output.ranks)[row] = result.rank;
  for (size_t i = 0; i < result.top.size(); ++i) {
    const size_t at_top = static_cast<size_t>(row * has_.output.max_top) + i;
    reinterpret_cast<int32_t*>(out + has_.output.top_ids)[at_top] = result.top[i].first;
    reinterpret_cast<float*>(out + has_.output.top_values)[at_top] = static_cast<float>(result.top[i].second);
  }
  if (static_cast<RowOutput::Kind>(params.kind) == RowOutput::Kind::full_logits && params.logits_row >= 0)
    std::copy_n(logits, vocab, reinterpret_cast<float*>(out + has_.output.logits) + params.logits_row * vocab);
  sampled_.push_back(result.token);
}

void ReferenceBackend::run(const PoolOp& op) {
  const auto* pooled = reinterpret_cast<const PooledRows*>(staged<int32_t>(has_.step.pool) + op.pooled);
  auto* vectors = reinterpret_cast<float*>(output_[has_.step.ring].data() + has_.output.pooled);
  for (int64_t s = 0; s < op.sequences; ++s) {
    const PooledRows& rows = pooled[s];
    std::vector<double> result;
    for (int64_t i = 0; i < op.dim; ++i) {
      const auto in = [&](int64_t row) { return at(op.in)[row * op.dim + i]; };
      double value = 0.0;
      if (op.kind == PoolOp::Kind::last) {
        value = in(rows.first + rows.count - 1);
      } else {
        float& kept = at(op.kept)[rows.slot * op.dim + i];
        if (op.kind == PoolOp::Kind::first) {
          value = rows.before > 0 ? kept : in(rows.first);
        } else {
          if (rows.before > 0) value = kept;
          for (int64_t row = 0; row < rows.count; ++row) value += in(rows.first + row);
        }
        kept = static_cast<float>(value);
        if (op.kind == PoolOp::Kind::mean) value /= rows.before + rows.count;
      }
      result.push_back(value);
    }
    double length = 1.0;
    if (op.normalize)
      length = std::max(std::sqrt(std::inner_product(result.begin(), result.end(), result.begin(), 0.0)), 1e-12);
    for (int64_t i = 0; i < op.dim; ++i)
      vectors[s * op.dim + i] = static_cast<float>(result[static_cast<size_t>(i)] / length);
  }
}

void ReferenceBackend::run(const TakeStatesOp& op) {
  std::copy_n(staged<float>(op.embedded ? has_.step.embedded : has_.step.given), has_.step.tokens * op.dim, at(op.out));
}

void ReferenceBackend::run(const GiveStatesOp& op) {
  auto* states = reinterpret_cast<float*>(output_[has_.step.ring].data() + has_.output.states);
  for (int64_t r = 0; r < has_.step.states; ++r)
    std::copy_n(at(op.in) + staged<int32_t>(has_.step.state_rows)[r] * op.dim, op.dim,
                states + r * has_.output.state_width + op.column);
}

void ReferenceBackend::submit_step(int) {
  for (const Op& op : ops_) std::visit([this](const auto& one) { run(one); }, op);
}

}  // namespace ingot::test
