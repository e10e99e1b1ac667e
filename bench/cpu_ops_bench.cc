// Times attention and sampling of the CPU device alone, in the shapes of SmolLM2-135M by default.
//   cpu_ops_bench [threads] [isa] [context] [head_size kv_heads group layers [kv_dtype]]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/device.h"

namespace {

using namespace ingot;

// On a busy machine the CPU time says more than the clock (it includes waiting at barriers).
double cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct Rig {
  std::unique_ptr<Backend> device;
  AttentionShape shape;
  int64_t layers = 30, context = 512, vocab = 49152;
  Region qkv, rope, out, logits;

  // One sequence whose blocks are in order; rows [first, first + count).
  StagedStep stage(int32_t first, int32_t count, bool decode, int32_t samples, const StagedSampling& params) const {
    std::byte* base = device->stage(0).data();
    StagedStep step;
    step.tokens = count;
    step.seqs = 1;
    step.decode_rows = decode ? 1 : 0;
    step.samples = samples;
    step.max_blocks = static_cast<int32_t>((context + 15) / 16 + 1);
    size_t at = 0;
    const auto take = [&at](size_t bytes) {
      const size_t offset = at;
      at += (bytes + 63) / 64 * 64;
      return offset;
    };
    const size_t rows = static_cast<size_t>(count);
    step.token_ids = take(4 * rows);
    step.positions = take(4 * rows);
    step.slots = take(8 * rows);
    step.query_start = take(8);
    step.seq_lens = take(4);
    step.block_table = take(4 * static_cast<size_t>(step.max_blocks));
    step.sampling = take(sizeof(StagedSampling) * static_cast<size_t>(std::max(samples, 1)));
    step.pool = take(4);
    for (int32_t i = 0; i < count; ++i) {
      reinterpret_cast<int32_t*>(base + step.positions)[i] = first + i;
      reinterpret_cast<int64_t*>(base + step.slots)[i] = first + i;
    }
    const int32_t start[2] = {0, count}, length = first + count;
    std::memcpy(base + step.query_start, start, 8);
    std::memcpy(base + step.seq_lens, &length, 4);
    for (int32_t i = 0; i < step.max_blocks; ++i) reinterpret_cast<int32_t*>(base + step.block_table)[i] = i;
    for (int32_t i = 0; i < samples; ++i) reinterpret_cast<StagedSampling*>(base + step.sampling)[i] = params;
    return step;
  }

  void attend(AttentionOp::Part part, int64_t layer) const {
    device->encode(AttentionOp{
        .part = part, .layer = layer, .shape = shape, .qkv = qkv, .rope = rope, .norm_eps = 1e-6f, .out = out});
  }

  double run(const StagedStep& step, const std::function<void()>& operations, int repeats = 15) const {
    std::vector<double> times;
    const double cpu_before = cpu_us();
    for (int i = 0; i < repeats; ++i) {
      device->begin(step);
      operations();
      device->submit();
      times.push_back(device->wait(0).run_us);
    }
    std::sort(times.begin(), times.end());
    std::printf(" min %9.1f us, median %9.1f us, CPU time of all threads %9.1f us\n", times[0], times[times.size() / 2],
                (cpu_us() - cpu_before) / repeats);
    return times[0];
  }
};

int64_t argument(int argc, char** argv, int i, int64_t fallback) { return argc > i ? std::atoll(argv[i]) : fallback; }

}  // namespace

int main(int argc, char** argv) {
  Rig rig;
  rig.device = make_cpu_backend(
      {.threads = static_cast<int>(argument(argc, argv, 1, 0)), .isa = argc > 2 ? argv[2] : "", .drop_pages = {}});
  rig.context = argument(argc, argv, 3, 512);
  rig.shape.head_size = argument(argc, argv, 4, 64);
  rig.shape.kv_heads = argument(argc, argv, 5, 3);
  rig.shape.heads = rig.shape.kv_heads * argument(argc, argv, 6, 3);
  rig.layers = argument(argc, argv, 7, 30);
  rig.shape.rope_dims = rig.shape.head_size;
  rig.shape.scale = 0.125f;
  const int64_t rows = rig.context, width = (rig.shape.heads + 2 * rig.shape.kv_heads) * rig.shape.head_size;
  size_t at = 0;
  const auto take = [&at](int64_t floats) {
    Region region{at, static_cast<size_t>(floats) * 4};
    at += (region.bytes + 63) / 64 * 64;
    return region;
  };
  rig.qkv = take(rows * width);
  rig.rope = take(rows * rig.shape.rope_dims);
  rig.out = take(rows * rig.shape.heads * rig.shape.head_size);
  constexpr int32_t kSamples = 16;
  rig.logits = take(kSamples * rig.vocab);
  rig.device->create_scratch(at);
  KvLayout kv;
  kv.layers = rig.layers;
  kv.num_blocks = (rig.context + 15) / 16 + 1;
  kv.kv_heads = rig.shape.kv_heads;
  kv.head_size = rig.shape.head_size;
  kv.dtype = parse_kv_type(argc > 8 ? argv[8] : "f16").value_or(KvType::f16);
  rig.device->create_kv_cache(kv);
  rig.device->create_sampler({kSamples, rig.context, rig.vocab});
  const OutputLayout output = OutputLayout::of(kSamples, 20, 0, rig.vocab);
  rig.device->create_io(size_t{1} << 20, output);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](Region region, float spread = 1.0f) {
    std::vector<float> values(region.bytes / 4);
    for (float& x : values) x = spread * normal(random);
    rig.device->write_scratch(region, std::as_bytes(std::span(values)));
  };
  fill(rig.qkv);
  fill(rig.rope);
  fill(rig.logits, 3.0f);
  std::printf("%s; %lld query heads, %lld KV heads of %lld, %lld layers, context %lld, %s\n",
              rig.device->info().description.c_str(), static_cast<long long>(rig.shape.heads),
              static_cast<long long>(rig.shape.kv_heads), static_cast<long long>(rig.shape.head_size),
              static_cast<long long>(rig.layers), static_cast<long long>(rig.context),
              std::string(kv_type_name(kv.dtype)).c_str());

  const int32_t context = static_cast<int32_t>(rig.context);
  StagedSampling greedy{};
  greedy.slot = -1;
  greedy.mask_offset = -1;
  greedy.logits_row = -1;
  greedy.top_p = 1.0f;
  greedy.repetition_penalty = 1.0f;
  const StagedStep prefill = rig.stage(0, context, false, 0, greedy);
  // Prefill write rotates q in place, so repeats change the numbers, not the work.
  std::printf("prefill write    ");
  rig.run(
      prefill,
      [&] {
        for (int64_t layer = 0; layer < rig.layers; ++layer) rig.attend(AttentionOp::Part::prefill_write, layer);
      },
      5);
  fill(rig.qkv);
  std::printf("prefill attention");
  rig.run(
      prefill,
      [&] {
        for (int64_t layer = 0; layer < rig.layers; ++layer) rig.attend(AttentionOp::Part::prefill, layer);
      },
      7);
  const StagedStep decode = rig.stage(context - 1, 1, true, 0, greedy);
  std::printf("decode attention ");
  rig.run(
      decode,
      [&] {
        for (int64_t layer = 0; layer < rig.layers; ++layer) rig.attend(AttentionOp::Part::decode, layer);
      },
      100);

  const auto sample = [&](const char* name, int32_t rows_sampled, StagedSampling params) {
    const StagedStep step = rig.stage(0, 1, true, rows_sampled, params);
    std::printf("sample %-10s x%-2d", name, rows_sampled);
    rig.run(step, [&] { rig.device->encode(SampleOp{rig.logits, rig.vocab}); }, 50);
  };
  StagedSampling plain = greedy;
  plain.temperature = 1.0f;
  StagedSampling top_p = plain;
  top_p.top_p = 0.9f;
  StagedSampling top_k = plain;
  top_k.top_k = 40;
  StagedSampling logprobs = greedy;
  logprobs.kind = 1;
  logprobs.top = 20;
  for (int32_t n : {1, 16}) {
    sample("greedy", n, greedy);
    sample("plain", n, plain);
    sample("top_k 40", n, top_k);
    sample("top_p 0.9", n, top_p);
    sample("logprobs", n, logprobs);
  }
  return 0;
}
