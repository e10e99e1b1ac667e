#pragma once

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/half.h"
#include "harness.h"
#include "kv_bytes.h"

namespace ingot::test {

// One attention layer on one device, fed with given q, k and v rows: the steps that a decoder would run, without a
// model.
struct AttentionCase {
  AttentionShape shape;
  KvType kv_dtype = KvType::f16;
  int64_t block_size = 16;
  int64_t num_blocks = 64;
  bool qk_norm = false;
  float spread = 1.0f;  // of q, k and v
  unsigned seed = 1;
};

// A sequence's rows and where they live.
struct TestSequence {
  std::vector<float> qkv;  // [length, (heads + 2 kv_heads) * head_size]
  std::vector<int32_t> blocks;
};

class AttentionRig {
 public:
  static constexpr int32_t kMaxRows = 1024;
  struct Piece {  // rows of one sequence in a step
    int sequence;
    int32_t first, count;
    bool decode;
  };

  AttentionRig(Backend& backend, const AttentionCase& config) : backend_(backend), case_(config) {
    const AttentionShape& s = config.shape;
    width_ = (s.heads + 2 * s.kv_heads) * s.head_size;
    RegionPlan plan;
    qkv_ = plan.take(static_cast<size_t>(kMaxRows * width_));
    rope_ = plan.take(static_cast<size_t>(kMaxRows * std::max<int64_t>(s.rope_dims, 1)));
    out_ = plan.take(static_cast<size_t>(kMaxRows * s.heads * s.head_size));
    backend.create_scratch(plan.bytes());
    KvLayout kv;
    kv.layers = kLayers;
    kv.num_blocks = config.num_blocks;
    kv.kv_heads = s.kv_heads;
    kv.block_size = config.block_size;
    kv.head_size = s.head_size;
    kv.dtype = config.kv_dtype;
    kv_ = kv;
    backend.create_kv_cache(kv);
    backend.create_io(1 << 20, OutputLayout::of(1, 1, 1, 16));
    std::vector<float> freqs;
    for (int64_t i = 0; i < s.rope_dims / 2; ++i)
      freqs.push_back(
          static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.rope_dims))));
    if (!freqs.empty()) freqs_ = backend.load_vector("inv_freq", freqs);
    if (config.qk_norm) {
      std::mt19937 random(7);
      q_norm_ = backend.load_vector("q_norm", random_floats(random, static_cast<size_t>(s.head_size)));
      k_norm_ = backend.load_vector("k_norm", random_floats(random, static_cast<size_t>(s.head_size)));
    }
    write_cache({}, 0);
  }

  // Gives a sequence that has not begun a past of so many rows: their K and V as they are, straight into the cache.
  // Whatever else is in a block must never be seen.
  void write_cache(const TestSequence& sequence, int32_t past) {
    const size_t rows = kv_rows(kv_), size = static_cast<size_t>(kv_.head_size);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const bool rounds = kv_.dtype == KvType::int8;
    KvNumbers poison;
    poison.elements.assign(rows * size, rounds ? 127.0f : nan);
    poison.scales.assign(rows, nan);
    for (bool value : {false, true}) {
      KvNumbers numbers = poison;
      for (int32_t p = 0; p < past; ++p)
        for (int64_t h = 0; h < kv_.kv_heads; ++h) {
          const int64_t block = sequence.blocks[static_cast<size_t>(p / kv_.block_size)];
          const size_t row = static_cast<size_t>((block * kv_.kv_heads + h) * kv_.block_size + p % kv_.block_size);
          const int64_t head = case_.shape.heads + (value ? kv_.kv_heads : 0) + h;
          const float* from = sequence.qkv.data() + p * width_ + head * kv_.head_size;
          float largest = 0;
          for (size_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(from[i]));
          numbers.scales[row] = rounds ? largest / 127 : 1.0f;
          for (size_t i = 0; i < size; ++i)
            numbers.elements[row * size + i] = rounds ? std::nearbyint(from[i] / numbers.scales[row]) : from[i];
        }
      const std::vector<std::byte> bytes = encode_kv(kv_, numbers), other = encode_kv(kv_, poison);
      for (int64_t layer = 0; layer < kLayers; ++layer)
        backend_.write_cache(layer, value, layer == kLayer ? bytes : other);
    }
  }

  // Runs one step and returns the attention outputs of its rows: [rows, heads * head_size].
  std::vector<float> step(const std::vector<TestSequence>& sequences, const std::vector<Piece>& pieces) {
    TestStep step;
    step.ring = ring_;
    std::vector<float> qkv;
    for (const Piece& piece : pieces) {
      const TestSequence& sequence = sequences[static_cast<size_t>(piece.sequence)];
      step.add_rows(sequence.blocks, case_.block_size, piece.first, piece.count, piece.decode);
      const auto begin = sequence.qkv.begin() + piece.first * width_;
      qkv.insert(qkv.end(), begin, begin + piece.count * width_);
    }
    put(backend_, qkv_, qkv);
    RopeTableOp table;
    table.inv_freq = freqs_;
    table.out = rope_;
    AttentionOp attend;
    attend.layer = kLayer;
    attend.shape = case_.shape;
    attend.qkv = qkv_;
    attend.rope = rope_;
    attend.q_norm = q_norm_;
    attend.k_norm = k_norm_;
    attend.out = out_;
    run_step(backend_, step, [&] {
      if (freqs_) backend_.encode(table);
      for (const auto part :
           {AttentionOp::Part::decode, AttentionOp::Part::prefill_write, AttentionOp::Part::prefill}) {
        attend.part = part;
        backend_.encode(attend);
      }
    });
    ring_ = 1 - ring_;
    return get(backend_, out_, step.positions.size() * static_cast<size_t>(case_.shape.heads * case_.shape.head_size));
  }

  std::vector<float> cache(bool value) {
    const size_t bytes = static_cast<size_t>(kv_.num_blocks) * kv_.block_bytes();
    std::vector<std::byte> raw(bytes);
    backend_.read_cache(kLayer, value, raw);
    return decode_kv(kv_, raw).values(kv_.head_size);
  }

  int64_t width() const { return width_; }

 private:
  static constexpr int64_t kLayers = 2, kLayer = 1;
  Backend& backend_;
  AttentionCase case_;
  KvLayout kv_;
  int64_t width_ = 0;
  int ring_ = 0;
  Region qkv_, rope_, out_;
  WeightId freqs_, q_norm_, k_norm_;
};

// Sequences of these lengths with random rows, in shuffled blocks that they do not share.
inline std::vector<TestSequence> make_sequences(const AttentionCase& config, const std::vector<int32_t>& lengths,
                                                bool exact_in_bf16 = false) {
  std::mt19937 random(config.seed);
  std::vector<int32_t> blocks(static_cast<size_t>(config.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  const AttentionShape& s = config.shape;
  const int64_t width = (s.heads + 2 * s.kv_heads) * s.head_size;
  std::vector<TestSequence> sequences;
  for (int32_t length : lengths) {
    TestSequence sequence;
    sequence.qkv = random_floats(random, static_cast<size_t>(length * width), config.spread);
    if (exact_in_bf16)
      for (float& x : sequence.qkv) x = bf16_to_f32(f32_to_bf16(x));
    for (int64_t i = 0; i * config.block_size < length; ++i) {
      sequence.blocks.push_back(blocks.back());
      blocks.pop_back();
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace ingot::test
