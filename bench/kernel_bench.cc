// Each kernel of the Metal device against its roof: read bandwidth for what streams weights or cache, arithmetic for
// prefill. One operation, many times in one step, weights rotated through more memory than any cache holds.
//   kernel_bench --device cuda [--limit-gb-s 4600] [--limit-tflops 790] [--only decode,512] [--rows 8]
//                [--activation f16] [--json FILE]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "backend/metal/attention.h"
#include "backend/metal/device.h"
#include "backend/metal/linear/candidates.h"
#include "backend/metal/linear/wide.h"
#include "core/error.h"
#include "ingot/step_builder.h"
#include "step/stage.h"

namespace ingot {
namespace {

constexpr int64_t kHidden = 5120, kFfn = 32768, kHeads = 32, kKvHeads = 8, kHead = 128, kVocab = 131072;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHead;
constexpr int64_t kMostRows = 2048, kBlocks = 17000, kBlock = 16;
constexpr size_t kRotated = size_t{1} << 30;     // bytes of weights a case goes through
constexpr size_t kLeastRotated = kRotated / 64;  // what a smaller matrix counts as

struct Options {
  std::string device = "cuda", only, json;
  double limit_gb_s = 0, limit_tflops = 0;
  DType activation = DType::bf16;
  int64_t rows = 0;  // of the cases that are run; 0: all
};

struct Result {
  std::string name;
  int64_t rows;
  double us, gb_s, tflops;
};

class Bench {
 public:
  Bench(Options options)
      : options_(std::move(options)),
        device_(make_metal_backend(
            {.cuda = options_.device == "cuda", .activation = options_.activation, .resources = resources()})) {
    residual_ = take(kMostRows * kHidden * 4);
    in_ = take(kMostRows * kFfn * 2);
    out_ = take(std::max(kMostRows * kFfn * 2, 64 * kVocab * 4));
    logits_ = take(64 * kVocab * 4);
    rope_ = take(kMostRows * kHead * 4);
    for (Region* region : {&route_.ids, &route_.weights, &route_.order, &route_.places, &route_.starts, &route_.items})
      *region = take(64 * 1024);
    device_->create_scratch(next_);
    device_->create_kv_cache({.layers = 1,
                              .num_blocks = kBlocks,
                              .kv_heads = kKvHeads,
                              .block_size = kBlock,
                              .head_size = kHead,
                              .dtype = KvType::bf16});
    device_->create_sampler({.slots = 64, .max_tokens = 64, .vocab = kVocab});
    device_->create_io(size_t{4} << 20, OutputLayout::of(64, 1, 1, kVocab));
    noise_.resize(size_t{4} << 20);
    std::mt19937 random(1);
    // Between -1 and 1, in f16 as in bf16, with exponents that vary little: nothing overflows.
    for (size_t i = 0; i + 1 < noise_.size(); i += 2) {
      const uint16_t bits =
          static_cast<uint16_t>((random() & 0x80ff) | (options_.activation == DType::f16 ? 0x2c00 : 0x3e00));
      std::memcpy(noise_.data() + i, &bits, 2);
    }
    std::vector<float> ones(kHidden, 1.0f), frequencies(kHead / 2, 0.01f);
    norm_ = device_->load_vector("norm", ones);
    frequencies_ = device_->load_vector("frequencies", frequencies);
    for (size_t done = 0; done < static_cast<size_t>(kMostRows * kFfn * 2); done += noise_.size())
      device_->write_scratch({in_.offset + done, noise_.size()}, noise_);
  }

  void linear(const std::string& name, int64_t n, int64_t k, int64_t rows, DType format = DType::bf16,
              bool accumulate = false, bool f32 = false, bool prefill = false) {
    if (!wanted(name, rows)) return;
    const auto& ids = weights(n, k, format);
    size_t turn = 0;
    const double us = time(rows, prefill, [&] {
      device_->encode(LinearOp{.rows = rows,
                               .in = in_,
                               .weight = ids[turn++ % ids.size()],
                               .bias = {},
                               .out = accumulate ? residual_ : out_,
                               .accumulate = accumulate,
                               .f32_out = f32});
    });
    if (!accumulate) compare_bits(name, n, k, n * (f32 ? 4 : 2), format);
    add(name, rows, us, static_cast<double>(dtype_bytes(format, static_cast<size_t>(n * k))),
        2.0 * static_cast<double>(n * k * rows));
  }
  void gated(const std::string& name, int64_t rows, DType format = DType::bf16, bool prefill = false) {
    if (!wanted(name, rows)) return;
    const auto& ids = weights(kFfn, kHidden, format);
    size_t turn = 0;
    const double us = time(rows, prefill, [&] {
      const WeightId gate = ids[turn++ % ids.size()], up = ids[turn++ % ids.size()];
      device_->encode(
          LinearOp{.rows = rows, .in = in_, .weight = gate, .up = up, .out = out_, .activation = ActivationKind::silu});
    });
    compare_bits(name, -kFfn, kHidden, kFfn * 2, format);
    add(name, rows, us, 2.0 * static_cast<double>(dtype_bytes(format, static_cast<size_t>(kFfn * kHidden))),
        4.0 * static_cast<double>(kFfn * kHidden * rows));
  }
  void norm(int64_t rows) {
    if (!wanted("norm", rows)) return;
    const double us = time(rows, false, [&] {
      device_->encode(NormOp{.rows = rows, .dim = kHidden, .in = residual_, .weight = norm_, .bias = {}, .out = out_});
    });
    add("norm", rows, us, static_cast<double>(rows * kHidden * 6), 0);
  }
  void decode_attention(int64_t rows, int64_t context) {
    const std::string name = fmt::format("decode attention {}", context);
    if (!wanted(name, rows)) return;
    context_ = context;
    const AttentionShape shape{
        .heads = kHeads, .kv_heads = kKvHeads, .head_size = kHead, .scale = 0.088f, .window = 0, .rope_dims = kHead};
    const double us = time(
        rows, false, [&] { device_->encode(AttentionOp{.shape = shape, .qkv = in_, .rope = rope_, .out = out_}); });
    add(name, rows, us, static_cast<double>(rows * context * kKvHeads * kHead * 4),
        4.0 * static_cast<double>(rows * context * kHeads * kHead));
    context_ = 512;
  }
  // The last `rows` rows of a prompt of `length`. `name` says which way is tried.
  void prefill_attention(int64_t rows, int64_t length, const std::string& way = "") {
    const std::string name = fmt::format("prefill attention {}{}", length, way);
    if (!wanted(name)) return;
    const AttentionShape shape{
        .heads = kHeads, .kv_heads = kKvHeads, .head_size = kHead, .scale = 0.088f, .window = 0, .rope_dims = kHead};
    context_ = length;
    const double us = time(rows, true, [&] {
      device_->encode(AttentionOp{.part = AttentionOp::Part::prefill, .shape = shape, .qkv = in_, .out = out_});
    });
    context_ = 512;
    const double seen =
        static_cast<double>(rows) * (static_cast<double>(length - rows) + 0.5 * static_cast<double>(rows));
    add(name, rows, us, 0, 4.0 * seen * static_cast<double>(kHeads * kHead));
  }
  void sample(int64_t rows) {
    if (!wanted("sample")) return;
    const double us = time(rows, false, [&] { device_->encode(SampleOp{.logits = logits_, .vocab = kVocab}); });
    add("sample", rows, us, static_cast<double>(rows * kVocab * 4), 0);
  }

  // A layer of Qwen3-30B-A3B: 8 of 128 experts a row, whichever they are for each.
  void experts(int64_t rows) {
    constexpr int64_t kExperts = 128, kPerToken = 8, kModel = 2048, kExpert = 768;
    const std::string names[] = {"route", "experts gate+up", "experts down", "experts sum"};
    if (std::none_of(std::begin(names), std::end(names), [&](const auto& name) { return wanted(name, rows); })) return;
    route_.rows = rows;
    route_.experts = kExperts;
    route_.per_token = kPerToken;
    std::vector<float> logits(static_cast<size_t>(rows * kExperts));
    std::mt19937 random(7);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) * 0.01f;
    device_->write_scratch({logits_.offset, logits.size() * 4}, std::as_bytes(std::span(logits)));
    // Makes the tables for what follows.
    const double route_us =
        time(rows, false, [&] { device_->encode(RouteOp{.logits = logits_, .route = route_, .normalize = true}); });
    if (wanted(names[0], rows)) add(names[0], rows, route_us, 0, 0);
    std::vector<std::byte> starts((kExperts + 1) * 4);
    device_->read_scratch({route_.starts.offset, starts.size()}, starts);
    int64_t chosen = 0;
    for (int64_t e = 0; e < kExperts; ++e)
      chosen += std::memcmp(starts.data() + e * 4, starts.data() + e * 4 + 4, 4) != 0 ? 1 : 0;
    const double bytes = static_cast<double>(chosen * kModel * kExpert * 2);
    const double operations = 2.0 * static_cast<double>(rows * kPerToken * kModel * kExpert);
    size_t turn = 0;
    if (wanted(names[1], rows)) {
      const auto& ids = weights(kExperts * kExpert, kModel, DType::bf16, kExperts);
      const double us = time(rows, false, [&] {
        const WeightId gate = ids[turn++ % ids.size()], up = ids[turn++ % ids.size()];
        device_->encode(ExpertLinearOp{.route = route_, .in = in_, .weight = gate, .up = up, .out = out_});
      });
      add(names[1], rows, us, 2 * bytes, 2 * operations);
    }
    if (wanted(names[2], rows)) {
      const auto& ids = weights(kExperts * kModel, kExpert, DType::bf16, kExperts);
      const double us = time(rows, false, [&] {
        device_->encode(ExpertLinearOp{.route = route_, .in = in_, .weight = ids[turn++ % ids.size()], .out = out_});
      });
      add(names[2], rows, us, bytes, operations);
    }
    if (wanted(names[3], rows)) {
      const double us = time(rows, false, [&] {
        device_->encode(ExpertSumOp{.route = route_, .dim = kModel, .in = in_, .out = residual_});
      });
      add(names[3], rows, us, 0, 0);
    }
  }

  void print() const {
    fmt::print("{}\n{:<34} {:>5} {:>10} {:>9} {:>6} {:>9} {:>6}\n", device_->info().description, "kernel", "rows", "us",
               "GB/s", "share", "TFLOP/s", "share");
    for (const Result& r : results_)
      fmt::print("{:<34} {:>5} {:>10.2f} {:>9.0f} {:>6} {:>9.1f} {:>6}\n", r.name, r.rows, r.us, r.gb_s,
                 share(r.gb_s, options_.limit_gb_s), r.tflops, share(r.tflops, options_.limit_tflops));
    if (options_.json.empty()) return;
    std::ofstream file(options_.json);
    file << fmt::format("{{\"device\": \"{}\", \"limit_gb_s\": {}, \"limit_tflops\": {}, \"kernels\": [",
                        device_->info().description, options_.limit_gb_s, options_.limit_tflops);
    for (size_t i = 0; i < results_.size(); ++i)
      file << fmt::format(
          "{}\n  {{\"name\": \"{}\", \"rows\": {}, \"us\": {:.3f}, \"gb_s\": {:.1f}, \"tflops\": {:.2f}}}",
          i ? "," : "", results_[i].name, results_[i].rows, results_[i].us, results_[i].gb_s, results_[i].tflops);
    file << "\n]}\n";
  }

 private:
  // Other kernels than the built-in ones, to compare.
  static std::string resources() {
    const char* folder = std::getenv("VLLM_METAL_PATH_RESOURCES");
    return folder != nullptr ? folder : "";
  }
  static std::string share(double value, double limit) {
    return limit > 0 ? fmt::format("{:.0f}%", 100 * value / limit) : "";
  }
  // `only` is one part of a name or several, with commas between: all of them must be in it.
  bool wanted(const std::string& name, int64_t rows = 0) const {
    if (options_.rows > 0 && rows > 0 && rows != options_.rows) return false;
    size_t at = 0;
    for (const std::string& only = options_.only; at <= only.size();) {
      const size_t end = std::min(only.find(',', at), only.size());
      if (name.find(only.substr(at, end - at)) == std::string::npos) return false;
      at = end + 1;
    }
    return true;
  }
  Region take(int64_t bytes) {
    const Region region{next_, static_cast<size_t>(bytes + 255) / 256 * 256};
    next_ += region.bytes;
    return region;
  }
  void add(const std::string& name, int64_t rows, double us, double bytes, double operations) {
    results_.push_back({name, rows, us, bytes / us * 1e-3, operations / us * 1e-6});
    fmt::print(stderr, "{} {}: {:.2f} us\n", name, rows, us);
  }

  // The first row of a product has the same bits whatever the number of rows.
  void compare_bits(const std::string& name, int64_t n, int64_t k, int64_t bytes, DType format) {
    std::vector<std::byte> row(static_cast<size_t>(bytes));
    device_->read_scratch({out_.offset, row.size()}, row);
    const auto [first, fresh] = rows_.try_emplace({n, k, static_cast<int>(format)}, row);
    if (!fresh && first->second != row) fmt::print("{}: OTHER BITS\n", name);
  }

  const std::vector<WeightId>& weights(int64_t n, int64_t k, DType format, int64_t experts = 1) {
    auto& ids = weights_[{n, k, static_cast<int>(format)}];
    if (!ids.empty()) return ids;
    const bool compiles_only = std::getenv("SOFTMETAL_COMPILE_ONLY") != nullptr;
    const size_t bytes = dtype_bytes(format, static_cast<size_t>(n * k));
    std::vector<std::byte> data(bytes);
    for (size_t at = 0; at < bytes; at += noise_.size())
      std::memcpy(data.data() + at, noise_.data(), std::min(noise_.size(), bytes - at));
    const TensorView tensor{"weight", format, {n, k}, data};
    MatrixSpec spec{"weight", {{&tensor, 0}}, n, k};
    spec.groups = experts;
    // A device that only compiles needs one.
    const size_t least = compiles_only ? 1 : kRotated;
    for (size_t made = 0; made < least || (least > 1 && ids.size() < 4); made += std::max(bytes, kLeastRotated))
      ids.push_back(device_->load_matrix(spec));
    return ids;
  }

  // Microseconds of one `operation`, the best of a few steps of many.
  double time(int64_t rows, bool prefill, const std::function<void()>& operation) {
    StepBuilder builder(kBlock);
    std::vector<std::vector<int32_t>> tables;
    int32_t block = 0;
    const auto table = [&](int64_t length) {
      std::vector<int32_t> blocks;
      for (int64_t p = 0; p < length; p += kBlock) blocks.push_back(block++ % kBlocks);
      return blocks;
    };
    if (prefill) {
      const std::vector<int32_t> ids(static_cast<size_t>(rows), 0);
      const int64_t length = std::max(rows, context_);
      tables.push_back(table(length));
      builder.add(ids, length - rows, tables[0]);
    } else {
      const int32_t id = 0;
      for (int64_t r = 0; r < rows; ++r) {
        tables.push_back(table(context_));
        builder.add({&id, 1}, context_ - 1, tables.back());
      }
      for (int32_t r = 0; r < rows && r < 64; ++r) builder.sample(r, {.temperature = 0});
    }
    const Step& made = builder.finish();
    double best = 0;
    int count = 16;
    for (int turn = 0; turn < 4; ++turn) {
      const StagedStep staged = stage_step(made, kVocab, kBlock, turn % 2, device_->stage(turn % 2));
      const auto encode = [&] {
        device_->encode(RopeTableOp{.inv_freq = frequencies_, .factor = 1.0f, .out = rope_});
        for (int i = 0; i < count; ++i) operation();
      };
      if (turn == 0) device_->rehearse(staged, encode);
      device_->begin(staged);
      encode();
      device_->submit();
      const double us = device_->wait(turn % 2).run_us / count;
      // The first step says how many make a few milliseconds.
      if (turn == 0) count = static_cast<int>(std::min(400.0, std::max(16.0, 4000.0 / std::max(us, 1.0))));
      if (turn >= 2) best = best == 0 ? us : std::min(best, us);
    }
    return best;
  }

  Options options_;
  std::unique_ptr<Backend> device_;
  size_t next_ = 0;
  Region residual_, in_, out_, logits_, rope_;
  ExpertRoute route_;
  WeightId norm_, frequencies_;
  std::vector<std::byte> noise_;
  std::map<std::tuple<int64_t, int64_t, int>, std::vector<WeightId>> weights_;
  std::map<std::tuple<int64_t, int64_t, int>, std::vector<std::byte>> rows_;
  std::vector<Result> results_;
  int64_t context_ = 512;
};

void run(const Options& options) {
  Bench bench(options);
  for (const int64_t rows : {1, 8, 16, 32, 64}) {
    bench.linear("qkv", kQkv, kHidden, rows);
    bench.linear("output", kHidden, kHeads * kHead, rows, DType::bf16, true);
    bench.gated("gate+up", rows);
    bench.linear("down", kHidden, kFfn, rows, DType::bf16, true);
    bench.linear("head", kVocab, kHidden, rows, DType::bf16, false, true);
  }
  if (options.activation == DType::f16)
    for (const DType format : {DType::q4_k, DType::q8_0, DType::q4_0, DType::q6_k})
      for (const int64_t rows : {1, 8, 16, 32, 64}) {
        const std::string f = " " + std::string(dtype_name(format));
        bench.linear("qkv" + f, kQkv, kHidden, rows, format);
        bench.linear("output" + f, kHidden, kHeads * kHead, rows, format, true);
        bench.gated("gate+up" + f, rows, format);
        bench.linear("down" + f, kHidden, kFfn, rows, format, true);
        bench.linear("head" + f, kVocab, kHidden, rows, format, false, true);
      }
  if (options.activation == DType::f16) {
    // What a tile of few rows of blocks may be by warpgroups.
    for (const DType format : {DType::q4_k, DType::q8_0})
      for (const metal::WideVariant& tried : {metal::WideVariant{.tile_rows = 16, .twice = true},
                                              {.tile_rows = 16},
                                              {.tile_rows = 16, .split = true, .twice = true},
                                              {.tile_rows = 16, .split = true},
                                              {.tile_rows = 32, .twice = true},
                                              {.tile_rows = 32, .split = true, .twice = true}})
        for (const int64_t rows : {16, 32}) {
          if (rows > tried.tile_rows) continue;
          metal::tried_wide = tried;
          const std::string f = fmt::format(" {} wide {}{}{}", dtype_name(format), tried.tile_rows,
                                            tried.split ? " split" : "", tried.twice ? " twice" : "");
          bench.linear("qkv" + f, kQkv, kHidden, rows, format);
          bench.linear("output" + f, kHidden, kHeads * kHead, rows, format, true);
          if (!tried.split) bench.gated("gate+up" + f, rows, format);
          bench.linear("down" + f, kHidden, kFfn, rows, format, true);
          if (!tried.split) bench.linear("head" + f, kVocab, kHidden, rows, format, false, true);
        }
    metal::tried_wide.reset();
  }
  if (options.activation == DType::f16) {
    // Few rows of blocks whose simdgroups share x, behind one way that does not. `matrix` counts panels of both
    // matrices of a gated product.
    for (const DType format : {DType::q4_k, DType::q8_0})
      for (metal::LinearVariant tried : {metal::LinearVariant{.matrix = 4},
                                         {.matrix = 6},
                                         {.matrix = 4, .shared = 16, .crowd = 512},
                                         {.matrix = 4, .shared = 8, .crowd = 512},
                                         {.matrix = 2, .shared = 20, .split = true, .crowd = 640},
                                         {.matrix = 2, .shared = 10, .split = true, .crowd = 640}}) {
        tried.unroll = format == DType::q8_0 ? 4 : 2;  // 256 columns
        const std::string f = fmt::format(" {} {}", dtype_name(format), metal::name_of(metal::LinearWay{false, tried}));
        for (const int64_t rows : {1, 8, 16}) {
          metal::tried_variant = tried;
          if (tried.split || tried.shared == 0) bench.linear("down" + f, kHidden, kFfn, rows, format);
          if (tried.shared == 0) {
            bench.linear("qkv" + f, kQkv, kHidden, rows, format);
            bench.linear("output" + f, kHidden, kHeads * kHead, rows, format, true);
          }
          if (tried.split || tried.matrix > 4) continue;
          bench.linear("head" + f, kVocab, kHidden, rows, format, false, true);
          metal::tried_variant->matrix /= 2;
          bench.gated("gate+up" + f, rows, format);
        }
      }
    metal::tried_variant.reset();
  }
  if (options.activation == DType::bf16)
    for (const int64_t rows : {1, 8, 16, 64}) bench.experts(rows);
  for (const int64_t rows : {1, 16, 64}) bench.norm(rows);
  for (const int64_t rows : {1, 8, 16, 64}) bench.decode_attention(rows, 512);
  bench.decode_attention(8, 32768);
  for (const int64_t rows : {1, 64}) bench.sample(rows);
  for (const int64_t rows : {128, 256, 2048}) {
    bench.gated("prefill gate+up", rows, DType::bf16, true);
    bench.linear("prefill qkv", kQkv, kHidden, rows, DType::bf16, false, false, true);
    bench.linear("prefill down", kHidden, kFfn, rows, DType::bf16, true, false, true);
  }
  // Tiles, where neither warpgroups nor a library take the product.
  for (const metal::LinearVariant& tiles :
       {metal::LinearVariant{.tile_rows = 64, .buffers = 2},
        {.tile_rows = 128, .tile_outputs = 128, .tile_turn = 32, .buffers = 4, .copies = true},
        {.tile_rows = 128, .tile_outputs = 128, .tile_turn = 32, .buffers = 3, .copies = true, .totals = true},
        {.tile_rows = 128, .tile_outputs = 64, .tile_turn = 32, .buffers = 4, .copies = true}}) {
    metal::tried_variant = tiles;
    const std::string way = " " + metal::name_of(metal::LinearWay{false, tiles});
    bench.gated("prefill gate+up" + way, 2048, DType::bf16, true);
    bench.linear("prefill qkv" + way, kQkv, kHidden, 2048, DType::bf16, false, false, true);
    bench.linear("prefill down" + way, kHidden, kFfn, 2048, DType::bf16, true, false, true);
  }
  metal::tried_variant.reset();
  bench.prefill_attention(2048, 2048);
  for (int64_t length = 4096; length <= 16384; length += 2048) bench.prefill_attention(2048, length);
  metal::tried_prefill = metal::PrefillWay::tiles;
  // What a threadgroup may take, one after the other.
  for (const metal::PrefillTiles& tiles : {metal::PrefillTiles{8, 256, 4, 2},
                                           {8, 128, 4, 2},
                                           {8, 128, 4, 4},
                                           {8, 128, 2, 4},
                                           {8, 128, 1, 4},
                                           {4, 64, 4, 2}}) {
    metal::tried_tiles = tiles;
    for (const int64_t length : {2048, 16384})
      bench.prefill_attention(2048, length,
                              fmt::format(" tiles {}x{} heads {} buffers {}", tiles.simdgroups,
                                          tiles.rows / tiles.simdgroups, tiles.heads, tiles.buffers));
  }
  metal::tried_tiles.reset();
  metal::tried_prefill.reset();
  metal::tried_prefill = metal::PrefillWay::own_rows;
  for (const int64_t length : {2048, 16384}) bench.prefill_attention(2048, length, " eight rows");
  metal::tried_prefill.reset();
  bench.print();
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) try {
  ingot::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (name == "--device")
      options.device = value;
    else if (name == "--only")
      options.only = value;
    else if (name == "--json")
      options.json = value;
    else if (name == "--rows")
      options.rows = std::atoll(value.c_str());
    else if (name == "--activation")
      options.activation = value == "f16" ? ingot::DType::f16 : ingot::DType::bf16;
    else if (name == "--limit-gb-s")
      options.limit_gb_s = std::atof(value.c_str());
    else if (name == "--limit-tflops")
      options.limit_tflops = std::atof(value.c_str());
    else
      throw std::invalid_argument("unknown option " + name);
  }
  ingot::run(options);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "kernel_bench: {}\n", error.what());
  return 1;
}
