bool group_maxima(const float* values, int64_t n, float* maxima) {
  const Vec lowest = broadcast(-__builtin_inff());
  IVec nan{};
  int64_t i = 0;
  for (; i + kMaximaGroup <= n; i += kMaximaGroup) {
    Vec best = lowest;
    for (int j = 0; j < kMaximaGroup; j += kLanes) {
      const Vec v = load(values + i + j);
      nan |= (v != v);
      best = max_lanes(v, best);
    }
    *maxima++ = reduce_max(best);
  }
  bool any = false;
  for (int j = 0; j < kLanes; ++j) any |= nan[j] != 0;
  if (i < n) {
    float best = -__builtin_inff();
    for (; i < n; ++i) {
      any |= values[i] != values[i];
      best = values[i] > best ? values[i] : best;
    }
    *maxima = best;
  }
  return any;
}

// Adds f(vector at i) and then f(values at the end, one by one): floats over a piece, pieces in double.
template <typename F, typename G>
inline double sum_pieces(int64_t n, F&& f, G&& f_one) {
  constexpr int64_t kPiece = 1024;
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = begin + kPiece < n ? begin + kPiece : n;
    Vec sums[2] = {};
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      sums[0] += f(i);
      sums[1] += f(i + kLanes);
    }
    for (; i + kLanes <= end; i += kLanes) sums[0] += f(i);
    total += static_cast<double>(reduce_add(sums[0] + sums[1]));
    for (; i < end; ++i) total += static_cast<double>(f_one(i));
  }
  return total;
}

double sum_above(const float* weights, int64_t n, float limit) {
  const Vec limits = broadcast(limit);
  return sum_pieces(
      n,
      [&](int64_t i) {
        const Vec w = load(weights + i);
        return w >= limits ? w : Vec{};
      },
      [&](int64_t i) { return weights[i] >= limit ? weights[i] : 0.0f; });
}

double exp_row(const float* values, int64_t n, float shift, float scale, float floor, float* out) {
  constexpr float kLog2e = 1.44269504f;
  const Vec shifts = broadcast(shift), scales = broadcast(scale), floors = broadcast(floor), log2e = broadcast(kLog2e);
  const auto weigh = [&](Vec v) {
    const Vec x = (v - shifts) * scales;
    const Vec e = exp2_lanes(x * log2e);
    return x >= floors ? e : Vec{};
  };
  return sum_pieces(
      n,
      [&](int64_t i) {
        const Vec e = weigh(load(values + i));
        if (out != nullptr) store(out + i, e);
        return e;
      },
      [&](int64_t i) {
        const float e = weigh(broadcast(values[i]))[0];
        if (out != nullptr) out[i] = e;
        return e;
      });
}

int64_t count_greater(const float* values, int64_t n, float limit) {
  const Vec limits = broadcast(limit);
  IVec counts{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) counts -= (load(values + i) > limits);
  int64_t total = 0;
  for (int j = 0; j < kLanes; ++j) total += counts[j];
  for (; i < n; ++i) total += values[i] > limit;
  return total;
}
