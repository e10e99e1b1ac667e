#include "model/dummy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/half.h"
#include "formats/block_quant.h"
#include "formats/mapped_file.h"
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

// Where a K block keeps its two scales, and the values that give codes of random bits the wanted deviation.
struct BlockScales {
  size_t offset;
  float scale, min;  // min: 0 when the format has none
};
BlockScales block_scales(DType type) {
  switch (type) {
    case DType::q2_k: return {80, kDeviation / 12, 1.5f * kDeviation / 12};
    case DType::q3_k: return {108, kDeviation / 42, 0};
    case DType::q4_k: return {0, kDeviation / 220, 7.5f * kDeviation / 220};
    case DType::q5_k: return {0, kDeviation / 528, 15.5f * kDeviation / 528};
    case DType::q6_k: return {208, kDeviation / 1366, 0};
    default: return {0, 0, 0};
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
  const BlockScales scales = block_scales(type);
  const uint16_t halves[2] = {f32_to_f16(scales.scale), f32_to_f16(scales.min)};
  for (size_t at = 0; at < pattern.size(); at += bytes) {
    for (size_t i = 0; i < bytes; i += 2) {
      const uint64_t word = next_word(state);
      std::memcpy(pattern.data() + at + i, &word, std::min<size_t>(2, bytes - i));
    }
    std::memcpy(pattern.data() + at + scales.offset, halves, scales.min == 0 ? 2 : 4);
  }
}

// One format's pattern, seen again and again over a range of addresses.
class RepeatingPattern {
 public:
  RepeatingPattern(DType type, size_t bytes) : block_bytes_(static_cast<size_t>(dtype_info(type).block_bytes)) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // A whole number of pages and of blocks, and an odd number of both: rows whose length is a power of two meet every
    // part of it.
    const size_t unit = std::lcm(page, block_bytes_);
    period_ = unit * ((kPatternBytes / unit + 1) | 1);
    const size_t copies = (bytes + period_ - 1) / period_ + 1;  // one more: tensors start anywhere in the first
    bytes_ = copies * period_;

    std::FILE* file = std::tmpfile();
    if (file == nullptr) fail("no temporary file");
    const int descriptor = fileno(file);
    void* range = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED || ftruncate(descriptor, static_cast<off_t>(period_)) != 0) {
      std::fclose(file);
      fail("no address space or no room in the folder for temporary files");
    }
    data_ = static_cast<std::byte*>(range);
    bool mapped = true;
    for (size_t i = 0; i < copies && mapped; ++i)
      mapped = mmap(data_ + i * period_, period_, i == 0 ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_FIXED,
                    descriptor, 0) != MAP_FAILED;
    std::fclose(file);  // the mappings keep it
    if (!mapped) {
      munmap(data_, bytes_);
      fail("the system refuses to map a file so often");
    }
    fill_pattern(type, {data_, period_});
  }
  ~RepeatingPattern() { munmap(data_, bytes_); }
  RepeatingPattern(const RepeatingPattern&) = delete;
  RepeatingPattern& operator=(const RepeatingPattern&) = delete;

  // `bytes` from a place that depends on `index`.
  std::span<const std::byte> view(size_t index, size_t bytes) const {
    const size_t blocks = period_ / block_bytes_;
    return {data_ + index * 1000003 % blocks * block_bytes_, bytes};
  }
  bool contains(std::span<const std::byte> part) const {
    return std::less_equal<>()(data_, part.data()) && std::less_equal<>()(part.data() + part.size(), data_ + bytes_);
  }

 private:
  [[noreturn]] static void fail(const char* why) { throw_error(ErrorKind::out_of_memory, "dummy weights: {}", why); }
  size_t block_bytes_;
  size_t period_ = 0, bytes_ = 0;
  std::byte* data_ = nullptr;
};

DType format_for(DType wanted, const TensorNeed& need) {
  const int64_t cols = need.shape.back();
  if (cols % dtype_info(wanted).block_size == 0) return wanted;
  return cols % dtype_info(DType::q8_0).block_size == 0 ? DType::q8_0 : DType::bf16;
}

class DummyCheckpoint : public Checkpoint {
 public:
  DummyCheckpoint(const ModelConfig& config, DType dtype) {
    const ModelLayout layout = model_layout(config, NameStyle::hugging_face);
    int64_t longest_vector = 0;
    for (const WeightNeed& weight : layout.weights)
      for (const TensorNeed& need : weight.parts) {
        TensorView tensor{need.name, DType::f32, need.shape, {}};
        if (weight.vector) {
          longest_vector = std::max(longest_vector, tensor.elements());
        } else {
          const bool plain = need.transposed || weight.layer_slot == &LayerWeights::router ||
                             weight.model_slot == &ModelWeights::positions;
          tensor.dtype = plain && is_block_quantized(dtype) ? DType::bf16 : format_for(dtype, need);
          size_t& most = most_bytes_[tensor.dtype];
          most = std::max(most, dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements())));
        }
        tensors_.push_back(std::move(tensor));
      }
    for (const auto& [type, bytes] : most_bytes_) patterns_.try_emplace(type, type, bytes);
    ones_.assign(static_cast<size_t>(longest_vector), 1.0f);
    zeros_.assign(static_cast<size_t>(longest_vector), 0.0f);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      TensorView& tensor = tensors_[i];
      const size_t bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()));
      if (tensor.shape.size() > 1) {
        tensor.data = patterns_.at(tensor.dtype).view(i, bytes);
      } else {
        tensor.data = std::as_bytes(std::span(tensor.name.ends_with(".bias") ? zeros_ : ones_)).first(bytes);
      }
      index_.emplace(tensor.name, i);
    }
  }

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }
  uint64_t file_bytes() const override { return 0; }
  void drop_pages(std::span<const std::byte> bytes) const override {
    for (const auto& [type, pattern] : patterns_)
      if (pattern.contains(bytes)) drop_mapped_pages(bytes);
  }

  std::string describe() const override { return "dummy weights"; }

 private:
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<DType, size_t> most_bytes_;
  std::map<DType, RepeatingPattern> patterns_;
  std::vector<float> ones_, zeros_;
};

}  // namespace

std::shared_ptr<Checkpoint> make_dummy_checkpoint(const ModelConfig& config, DType dtype) {
  return std::make_shared<DummyCheckpoint>(config, dtype);
}

}  // namespace ingot
