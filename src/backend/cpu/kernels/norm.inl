// Sums with four accumulators of vectors, in an order that depends on `dim` alone.
template <typename F>
inline float sum_map(const float* x, int64_t dim, F&& f) {
  Vec acc[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) acc[j] += f(load(x + i + j * kLanes));
  for (; i + kLanes <= dim; i += kLanes) acc[0] += f(load(x + i));
  float sum = reduce_add((acc[0] + acc[1]) + (acc[2] + acc[3]));
  for (; i < dim; ++i) sum += f(broadcast(x[i]))[0];
  return sum;
}

inline void scale_row(const float* in, const float* weight, const float* bias, float mean, float scale, int64_t dim,
                      float* out) {
  for (int64_t i = 0; i < dim; ++i) {
    float y = (in[i] - mean) * scale;
    if (weight != nullptr) y *= weight[i];
    if (bias != nullptr) y += bias[i];
    out[i] = y;
  }
}

void rms_norm(const float* in, const float* weight, const float* bias, float eps, int64_t dim, float* out) {
  const float squares = sum_map(in, dim, [](Vec v) { return v * v; });
  scale_row(in, weight, bias, 0.0f, 1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + eps), dim, out);
}

void layer_norm(const float* in, const float* weight, const float* bias, float eps, int64_t dim, float* out) {
  const float n = static_cast<float>(dim);
  const float mean = sum_map(in, dim, [](Vec v) { return v; }) / n;
  const Vec means = broadcast(mean);
  const float variance = sum_map(in, dim, [means](Vec v) { return (v - means) * (v - means); }) / n;
  scale_row(in, weight, bias, mean, 1.0f / __builtin_sqrtf(variance + eps), dim, out);
}

void rotate(float* head, const float* cos_sin, int64_t dims) {
  const int64_t half = dims / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    const float a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}
