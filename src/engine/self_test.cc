#include "engine/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/half.h"
#include "formats/block_quant.h"
#include "ingot/step_builder.h"
#include "step/stage.h"

namespace ingot {
namespace {

constexpr int64_t kDim = 128;  // width of everything
constexpr int64_t kHead = 32;  // attention head
constexpr int64_t kRows = 3;
constexpr int64_t kQkv = 3 * kHead;

// Repeatable values of about unit size.
std::vector<float> values(size_t count, uint32_t seed) {
  std::vector<float> out(count);
  for (float& v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) / static_cast<float>(1 << 22);
  }
  return out;
}

// The device's activation format, to and from float.
std::vector<std::byte> encode(DType type, std::span<const float> in) {
  std::vector<std::byte> out(dtype_bytes(type, in.size()));
  quantize(type, in.data(), in.size(), out.data());
  return out;
}

class SelfTest {
 public:
  explicit SelfTest(Backend& device) : device_(device), type_(device.info().activation) {
    const size_t bytes = static_cast<size_t>(kRows * kDim) * 4;
    for (Region* region : {&residual_, &in_, &out_, &rope_, &logits_}) {
      *region = {next_, bytes};
      next_ += bytes;
    }
    device_.create_scratch(next_);
    device_.create_kv_cache(
        {.layers = 1, .num_blocks = 4, .kv_heads = 1, .block_size = 16, .head_size = kHead, .dtype = KvType::f16});
    device_.create_sampler({.slots = 1, .max_tokens = 64, .vocab = kDim});
    output_ = OutputLayout::of(4, 1, 1, kDim);
    device_.create_io(1 << 16, output_);
  }

  SelfTestResult norm() {
    const std::vector<float> x = values(kRows * kDim, 1), w = values(kDim, 2);
    const WeightId weight = device_.load_vector("norm", w);
    write(residual_, DType::f32, x);
    run([&] {
      device_.encode(NormOp{.rows = kRows, .dim = kDim, .in = residual_, .weight = weight, .bias = {}, .out = out_});
    });
    std::vector<double> expected(x.size());
    for (int64_t r = 0; r < kRows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < kDim; ++i) squares += static_cast<double>(x[r * kDim + i]) * x[r * kDim + i];
      const double scale = 1 / std::sqrt(squares / kDim + 1e-5);
      for (int64_t i = 0; i < kDim; ++i) expected[r * kDim + i] = x[r * kDim + i] * scale * w[i];
    }
    return compare("RMS norm", expected, 1e-5);
  }

  // Quantized activations cost about 1/256 of the largest product a block, averaged over the sum.
  SelfTestResult linear(DType format, double allowed) {
    const std::vector<float> x = values(kRows * kDim, 3);
    std::vector<float> w = values(kDim * kDim, 4);
    const std::vector<std::byte> stored = encode(format, w);
    dequantize(format, stored.data(), w.size(), w.data());
    TensorView tensor{"self-test", format, {kDim, kDim}, stored};
    MatrixSpec spec{"self-test", {{&tensor, 0}}, kDim, kDim};
    const WeightId weight = device_.load_matrix(spec);
    write(in_, type_, x);
    run([&] { device_.encode(LinearOp{.rows = kRows, .in = in_, .weight = weight, .bias = {}, .out = out_}); });
    std::vector<double> expected(x.size(), 0);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t n = 0; n < kDim; ++n)
        for (int64_t k = 0; k < kDim; ++k)
          expected[r * kDim + n] += static_cast<double>(x[r * kDim + k]) * w[n * kDim + k];
    return compare("linear " + std::string(dtype_name(format)), expected, allowed);
  }

  // A sequence's first token attends to itself alone: the output is its own V, rounded to the cache's format.
  SelfTestResult attention() {
    const std::vector<float> qkv = values(kQkv, 5);
    write(in_, type_, qkv);
    const std::vector<float> frequencies(kHead / 2, 0.5f);
    const WeightId inv_freq = device_.load_vector("inv_freq", frequencies);
    const AttentionShape shape{
        .heads = 1, .kv_heads = 1, .head_size = kHead, .scale = 0.2f, .window = 0, .rope_dims = kHead};
    run([&] {
      device_.encode(RopeTableOp{.inv_freq = inv_freq, .factor = 1.0f, .out = rope_});
      device_.encode(AttentionOp{.layer = 0, .shape = shape, .qkv = in_, .rope = rope_, .out = out_});
    });
    std::vector<double> expected;
    for (int64_t i = 0; i < kHead; ++i) expected.push_back(f16_to_f32(f32_to_f16(qkv[2 * kHead + i])));
    return compare("paged attention", expected, 1e-5);
  }

  SelfTestResult greedy() {
    std::vector<float> logits = values(kDim, 6);
    logits[77] = logits[99] = 10;  // a tie: the lower id wins
    write(logits_, DType::f32, logits);
    run([&] { device_.encode(SampleOp{.logits = logits_, .vocab = kDim}); });
    int32_t token = -1;
    std::memcpy(&token, device_.output(ring_).data() + output_.tokens, sizeof token);
    return {"greedy sampling", token == 77, static_cast<double>(std::abs(token - 77)), 0};
  }

 private:
  // One decode step of one sequence around the operations that `encode_ops` adds.
  template <typename F>
  void run(F encode_ops) {
    ring_ = 1 - ring_;
    constexpr int64_t kBlockSize = 16;
    StepBuilder builder(kBlockSize);
    const int32_t token = 0, block = 1;
    builder.add({&token, 1}, 0, {&block, 1});
    builder.sample(0, {.temperature = 0});
    const StagedStep staged = stage_step(builder.finish(), kDim, kBlockSize, ring_, device_.stage(ring_));
    device_.rehearse(staged, encode_ops);
    device_.begin(staged);
    encode_ops();
    device_.submit();
    device_.wait(ring_);
  }
  void write(Region region, DType type, std::span<const float> in) {
    const std::vector<std::byte> bytes = encode(type, in);
    device_.write_scratch({region.offset, bytes.size()}, bytes);
  }
  SelfTestResult compare(std::string name, const std::vector<double>& expected, double allowed) {
    if (type_ != DType::f32) allowed = std::max(allowed, 2e-2);  // 16-bit activations
    std::vector<std::byte> bytes(dtype_bytes(type_, expected.size()));
    device_.read_scratch({out_.offset, bytes.size()}, bytes);
    std::vector<float> got(expected.size());
    dequantize(type_, bytes.data(), got.size(), got.data());
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i)
      error = std::max(error, std::isfinite(got[i]) ? std::abs(got[i] - expected[i]) : 1e30);
    return {std::move(name), error <= allowed, error, allowed};
  }

  Backend& device_;
  DType type_;
  Region residual_, in_, out_, rope_, logits_;
  OutputLayout output_;
  size_t next_ = 0;
  int ring_ = 0;
};

}  // namespace

std::vector<SelfTestResult> run_self_test(Backend& device) {
  SelfTest test(device);
  return {test.norm(),
          test.linear(DType::f32, 1e-3),
          test.linear(DType::bf16, 0.3),  // activations may be rounded to bf16
          test.linear(DType::q8_0, 0.5),
          test.linear(DType::q4_0, 0.5),
          test.attention(),
          test.greedy()};
}

}  // namespace ingot
