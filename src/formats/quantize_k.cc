#include "formats/quantize_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/half.h"

namespace ingot {
namespace {

constexpr int kGroup = 32;
constexpr int kGroups = 8;   // of a block
constexpr float kTop = 15;   // largest level of an element
constexpr float kFine = 63;  // largest level of a scale or a min

// A group of elements as x = scale * level - min; neither is negative.
struct Line {
  float scale = 0, min = 0;
};

// Four elements at a time: what any CPU of ours has registers for. Every sum has the same order everywhere.
constexpr int kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

Lanes load(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof(lanes));
  return lanes;
}
float sum(Lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

// Adding 1.5 * 2^23 leaves no bits for a fraction: to the nearest whole number, ties to even.
constexpr float kRounder = 12582912.0f;
float nearest_level(float x, float top) {
  x = x > 0 ? x : 0;  // NaN: 0
  x = x < top ? x : top;
  return (x + kRounder) - kRounder;
}

float reciprocal(float x) { return x > 0 ? 1 / x : 0; }

// Sums over a group that both the best line for given levels and its error are made of.
struct Sums {
  float w = 0, q = 0, qq = 0, x = 0, qx = 0, xx = 0;
};

// The line of least weighted squares through (level, x). A positive offset cannot be stored: then the best one through
// the origin.
Line fit(const Sums& s) {
  const float determinant = s.w * s.qq - s.q * s.q;
  if (determinant > 0) {
    const float scale = (s.w * s.qx - s.q * s.x) / determinant;
    const float offset = (s.qq * s.x - s.q * s.qx) / determinant;
    if (offset <= 0 && scale >= 0) return {scale, -offset};
  }
  return {s.qq > 0 ? std::max(0.0f, s.qx / s.qq) : 0, 0};
}

float error_of(const Sums& s, const Line& line) {
  const float a = line.scale, b = -line.min;
  return s.xx - 2 * (a * s.qx + b * s.x) + a * a * s.qq + 2 * a * b * s.q + b * b * s.w;
}

// Large elements weigh more, as they do in a product; the constant keeps the small ones from being lost.
void weigh(const float* x, float* weights) {
  Lanes squares{};
  for (int i = 0; i < kGroup; i += kLanes) squares += load(x + i) * load(x + i);
  const float deviation = std::sqrt(sum(squares) / kGroup);
  for (int i = 0; i < kGroup; ++i) weights[i] = deviation + std::fabs(x[i]);
}

// Tries ranges a little narrower and wider than that of the elements, each with the line that suits its levels best.
Line best_line(const float* x, const float* weights) {
  constexpr int kTries = 11;
  constexpr float kNarrowest = -1.0f, kStep = 0.2f;  // in levels
  const auto [lowest, highest] = std::minmax_element(x, x + kGroup);
  const float low = std::min(0.0f, *lowest), high = *highest;
  if (!(high > low)) return {0, -low};  // all alike, or nothing but NaN
  Lanes w{}, wx{}, wxx{};
  for (int i = 0; i < kGroup; i += kLanes) {
    const Lanes weight = load(weights + i), value = load(x + i);
    w += weight;
    wx += weight * value;
    wxx += weight * value * value;
  }
  Sums s{.w = sum(w), .x = sum(wx), .xx = sum(wxx)};
  const Lanes top = Lanes{} + kTop;
  Line best{(high - low) / kTop, -low};
  float least = -1;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const float inverse_scale = (kTop + kNarrowest + kStep * static_cast<float>(attempt)) / (high - low);
    Lanes wq{}, wqq{}, wqx{};
    for (int i = 0; i < kGroup; i += kLanes) {
      const Lanes value = load(x + i), exact = (value - low) * inverse_scale;  // not negative
      const Lanes q = ((exact < top ? exact : top) + kRounder) - kRounder, weighted = load(weights + i) * q;
      wq += weighted;
      wqq += weighted * q;
      wqx += weighted * value;
    }
    s.q = sum(wq);
    s.qq = sum(wqq);
    s.qx = sum(wqx);
    const Line line = fit(s);
    const float error = error_of(s, line);
    if (least < 0 || error < least) {
      least = std::max(0.0f, error);
      best = line;
    }
  }
  return best;
}

float store_f16(float value, uint8_t* out) {  // the value as it will be read
  const uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, sizeof(half));
  return f16_to_f32(half);
}

// 8 scales and 8 mins of 6 bits in 12 bytes: the first four of each whole, the upper bits of the rest above them.
void pack_levels(const uint8_t* scales, const uint8_t* mins, uint8_t* out) {
  for (int g = 0; g < 4; ++g) {
    out[g] = static_cast<uint8_t>(scales[g] | (scales[g + 4] >> 4) << 6);
    out[g + 4] = static_cast<uint8_t>(mins[g] | (mins[g + 4] >> 4) << 6);
    out[g + 8] = static_cast<uint8_t>((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
  }
}

}  // namespace

void write_q4_k(const float* x, uint8_t* block) {
  Line lines[kGroups];
  float largest_scale = 0, largest_min = 0;
  for (int g = 0; g < kGroups; ++g) {
    float weights[kGroup];
    weigh(x + g * kGroup, weights);
    lines[g] = best_line(x + g * kGroup, weights);
    largest_scale = std::max(largest_scale, lines[g].scale);
    largest_min = std::max(largest_min, lines[g].min);
  }
  const float d = store_f16(largest_scale / kFine, block);
  const float dmin = store_f16(largest_min / kFine, block + 2);

  uint8_t scales[kGroups], mins[kGroups], levels[kGroups][kGroup];
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = static_cast<uint8_t>(nearest_level(lines[g].scale * reciprocal(d), kFine));
    mins[g] = static_cast<uint8_t>(nearest_level(lines[g].min * reciprocal(dmin), kFine));
    const float inverse_scale = reciprocal(d * static_cast<float>(scales[g])), min = dmin * static_cast<float>(mins[g]);
    for (int i = 0; i < kGroup; ++i)
      levels[g][i] = static_cast<uint8_t>(nearest_level((x[g * kGroup + i] + min) * inverse_scale, kTop));
  }
  pack_levels(scales, mins, block + 4);
  for (int g = 0; g < kGroups; g += 2)
    for (int i = 0; i < kGroup; ++i)
      block[16 + g / 2 * kGroup + i] = static_cast<uint8_t>(levels[g][i] | levels[g + 1][i] << 4);
}

}  // namespace ingot
