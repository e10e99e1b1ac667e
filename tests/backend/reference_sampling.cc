#include "reference_sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace ingot::test {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
}

double reference_uniform(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{c[0]} * 0xD2511F53u, p1 = uint64_t{c[2]} * 0xCD9E8D57u;
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return static_cast<double>(((uint64_t{c[0]} << 32) | c[1]) >> 11) / 9007199254740992.0;
}

std::vector<double> reference_distribution(std::span<const float> logits, const StagedSampling& params,
                                           const int32_t* pool, std::span<const int32_t> prompt,
                                           std::span<const int32_t> output) {
  const size_t vocab = logits.size();
  std::vector<double> z(logits.begin(), logits.end());
  if (std::any_of(z.begin(), z.end(), [](double x) { return std::isnan(x); })) return std::vector<double>(vocab, 0.0);

  if (params.allowed_count > 0) {
    const std::set<int32_t> allowed(pool + params.allowed_offset, pool + params.allowed_offset + params.allowed_count);
    for (size_t i = 0; i < vocab; ++i)
      if (!allowed.contains(static_cast<int32_t>(i))) z[i] = -kInf;
  }
  if (params.mask_offset >= 0)
    for (size_t i = 0; i < vocab; ++i)
      if (((static_cast<uint32_t>(pool[params.mask_offset + static_cast<int32_t>(i / 32)]) >> (i % 32)) & 1) == 0)
        z[i] = -kInf;
  const int32_t* bad = pool + params.bad_offset;
  for (int32_t i = 0; i < params.bad_count; ++i) {
    const std::vector<int32_t> word(bad + 1, bad + 1 + bad[0]);
    bad += 1 + bad[0];
    const size_t before = word.size() - 1;
    if (output.size() >= before &&
        std::equal(word.begin(), word.end() - 1, output.end() - static_cast<ptrdiff_t>(before)))
      z[static_cast<size_t>(word.back())] = -kInf;
  }
  if (static_cast<int32_t>(output.size()) < params.min_tokens && params.slot >= 0)
    for (int32_t i = 0; i < params.stop_count; ++i) z[static_cast<size_t>(pool[params.stop_offset + i])] = -kInf;
  for (int32_t i = 0; i < params.bias_count; ++i)
    z[static_cast<size_t>(pool[params.bias_offset + 2 * i])] +=
        std::bit_cast<float>(pool[params.bias_offset + 2 * i + 1]);
  if (params.slot >= 0) {
    std::set<int32_t> present(prompt.begin(), prompt.end());
    std::map<int32_t, int> generated;
    for (int32_t id : output) ++generated[id];
    for (int32_t id : output) present.insert(id);
    for (int32_t id : present) {
      double& x = z[static_cast<size_t>(id)];
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
      if (generated.contains(id)) x -= params.frequency_penalty * generated[id] + params.presence_penalty;
    }
  }

  std::vector<size_t> order(vocab);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] > z[b] || (z[a] == z[b] && a < b); });
  const double best = z[order[0]];
  std::vector<double> p(vocab, 0.0);
  if (best == -kInf) return p;
  if (params.temperature == 0.0f || best == kInf) {
    p[order[0]] = 1.0;
    return p;
  }
  for (size_t i = 0; i < vocab; ++i) p[i] = std::exp((z[i] - best) / params.temperature);
  for (double& x : p)
    if (x < params.min_p) x = 0.0;
  if (params.top_k > 0)
    for (size_t i = static_cast<size_t>(params.top_k); i < vocab; ++i) p[order[i]] = 0.0;
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  if (params.top_p < 1.0f) {
    double sum = 0.0;
    for (size_t i : order) {
      if (sum >= params.top_p * total) p[i] = 0.0;
      sum += p[i];
    }
  }
  const double kept = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= kept;
  return p;
}

ReferenceRow reference_sample(std::span<const float> logits, const StagedSampling& params, const int32_t* pool,
                              std::span<const int32_t> prompt, std::span<const int32_t> output) {
  ReferenceRow row;
  const auto kind = static_cast<RowOutput::Kind>(params.kind);
  const bool nan = std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  if (kind == RowOutput::Kind::token || kind == RowOutput::Kind::logprobs) {
    const std::vector<double> p = reference_distribution(logits, params, pool, prompt, output);
    double left = reference_uniform(params.seed, static_cast<uint64_t>(params.position));
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0.0) continue;
      row.token = static_cast<int32_t>(i);
      left -= p[i];
      if (left < 0.0) break;
    }
  }
  if (kind == RowOutput::Kind::score) row.token = params.target;

  const bool rated = kind == RowOutput::Kind::logprobs || kind == RowOutput::Kind::score;
  const double best = nan ? 0.0 : *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float x : logits) sum += std::exp(x - best);
  const double log_sum = rated ? best + std::log(sum) : 0.0;
  if (rated && (nan || row.token < 0)) {
    row.logprob = std::nan("");
  } else if (rated) {
    const float logit = logits[static_cast<size_t>(row.token)];
    row.logprob = logit - log_sum;
    row.rank =
        1 + static_cast<int32_t>(std::count_if(logits.begin(), logits.end(), [&](float x) { return x > logit; }));
  }
  if (rated || kind == RowOutput::Kind::top_logits) {
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    if (!nan)
      std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x > y || (x == y && a < b);
      });
    for (int32_t i = 0; i < params.top; ++i) {
      if (nan)
        row.top.emplace_back(-1, std::nan(""));
      else
        row.top.emplace_back(order[static_cast<size_t>(i)],
                             logits[static_cast<size_t>(order[static_cast<size_t>(i)])] - log_sum);
    }
  }
  return row;
}

}  // namespace ingot::test
