#include "model/dummy.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "core/half.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "model/layout.h"

namespace ingot {
namespace {

constexpr float kDeviation = 0.02f;
constexpr size_t kPatternBytes = size_t{8} << 20;  // at least

// SplitMix64: a word a call, the same everywhere.
uint64_t next_word(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Near enough to a normal distribution: the sum of eight bytes.
float next_normal(uint64_t& state) {
  uint64_t word = next_word(state);
  int sum = 0;
  for (int i = 0; i < 8; ++i, word >>= 8) sum += static_cast<int>(word & 255);
  constexpr float kMean = 8 * 127.5f, kSigma = 209.0f;  // 73.9 * sqrt(8)
  return (static_cast<float>(sum) - kMean) / kSigma * kDeviation;
}

// The two scales of a K block that give codes of random bits the wanted deviation.
struct SuperScales {
  float d, dmin;
};
SuperScales super_scales(DType type) {
  switch (type) {
    case DType::q2_k: return {kDeviation / 12, 1.5f * kDeviation / 12};
    case DType::q3_k: return {kDeviation / 42, 0};
    case DType::q4_k: return {kDeviation / 220, 7.5f * kDeviation / 220};
    case DType::q5_k: return {kDeviation / 528, 15.5f * kDeviation / 528};
    case DType::q6_k: return {kDeviation / 1366, 0};
    default: return {};
  }
}

void fill_pattern(DType type, std::span<std::byte> pattern) {
  const DTypeInfo& info = dtype_info(type);
  uint64_t state = 1 + static_cast<uint64_t>(type);
  const auto bytes = static_cast<size_t>(info.block_bytes);
  if (info.block_size <= 32) {
    float values[32];
    for (size_t at = 0; at < pattern.size(); at += bytes) {
      for (int i = 0; i < info.block_size; ++i) values[i] = next_normal(state);
      quantize(type, values, static_cast<size_t>(info.block_size), pattern.data() + at);
    }
    return;
  }
  const SuperScales scales = super_scales(type);
  const uint16_t halves[2] = {f32_to_f16(scales.d), f32_to_f16(scales.dmin)};
  for (size_t at = 0; at < pattern.size(); at += bytes) {
    for (size_t i = 0; i < bytes; i += 2) {
      const uint64_t word = next_word(state);
      std::memcpy(pattern.data() + at + i, &word, std::min<size_t>(2, bytes - i));
    }
    std::memcpy(pattern.data() + at + info.layout.d_at, halves, has_min(info.layout.scales) ? 4 : 2);
  }
}

// One format's numbers, to be read round and round. A whole number of pages and of blocks, and an odd number of both:
// rows whose length is a power of two meet every part of it.
std::shared_ptr<const std::vector<std::byte>> make_pattern(DType type) {
  const size_t unit = std::lcm(size_t{4096}, static_cast<size_t>(dtype_info(type).block_bytes));
  std::vector<std::byte> pattern(unit * ((kPatternBytes / unit + 1) | 1));
  fill_pattern(type, pattern);
  return std::make_shared<const std::vector<std::byte>>(std::move(pattern));
}

void repeat_pattern(const std::vector<std::byte>& pattern, size_t start, std::span<std::byte> out) {
  for (; !out.empty(); start = 0) {
    const size_t count = std::min(out.size(), pattern.size() - start);
    std::memcpy(out.data(), pattern.data() + start, count);
    out = out.subspan(count);
  }
}

DType format_for(DType wanted, const TensorNeed& need) {
  const int64_t cols = need.shape.back();
  if (cols % dtype_info(wanted).block_size == 0) return wanted;
  return cols % dtype_info(DType::q8_0).block_size == 0 ? DType::q8_0 : DType::bf16;
}

}  // namespace

std::shared_ptr<Checkpoint> make_dummy_checkpoint(const ModelConfig& config, DType dtype) {
  auto dummy = std::make_shared<ComputedCheckpoint>(nullptr, 1, "dummy weights");
  std::map<DType, std::shared_ptr<const std::vector<std::byte>>> patterns;
  for (const WeightNeed& weight : model_layout(config, NameStyle::hugging_face).weights)
    for (const TensorNeed& need : weight.parts) {
      TensorView tensor{need.name, DType::f32, need.shape, {}};
      const auto elements = static_cast<size_t>(tensor.elements());
      if (weight.vector) {
        const float value = tensor.name.ends_with(".bias") ? 0.0f : 1.0f;
        dummy->add(std::move(tensor), [elements, value](std::byte* out, ThreadPool&) {
          std::fill_n(reinterpret_cast<float*>(out), elements, value);
        });
        continue;
      }
      tensor.dtype = weight.exact && is_block_quantized(dtype) ? DType::bf16 : format_for(dtype, need);
      auto& pattern = patterns[tensor.dtype];
      if (pattern == nullptr) pattern = make_pattern(tensor.dtype);
      // Each tensor starts at another block.
      const auto block = static_cast<size_t>(dtype_info(tensor.dtype).block_bytes);
      const size_t start = dummy->tensors().size() * 1000003 % (pattern->size() / block) * block;
      const size_t bytes = dtype_bytes(tensor.dtype, elements);
      dummy->add(std::move(tensor), [pattern = pattern, start, bytes](std::byte* out, ThreadPool&) {
        repeat_pattern(*pattern, start, {out, bytes});
      });
    }
  return dummy;
}

}  // namespace ingot
