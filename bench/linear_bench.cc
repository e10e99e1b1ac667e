// Matrix products alone: every weight format and row count, against the two limits of the machine: how fast memory can
// be read and how fast the cores multiply.
//
//   linear_bench [--threads N] [--isa NAME] [--types q4_0,q4_1] [--rows 1,16,512] [--shape 4096x4096] [--ms 200]
//                [--mb 80]       copies of a --shape are made until they fill this much memory
//                [--outliers 0.2]  share of the blocks of activations that have one (linear/format.h); none by default
//                [--clock cpu]   with one thread: CPU time, for a machine that has other work to do
//
// A "model" is every matrix of one forward pass (SmolLM2-135M's shapes by default), different weights for each layer,
// so that weights come from memory as they do in real decoding. Best of many runs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/memory.h"
#include "core/error.h"
#include "core/half.h"

namespace ingot::cpu {
namespace {

bool cpu_clock = false;  // time used by the calling thread instead of time passed

double now() {
  timespec t;
  clock_gettime(cpu_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) out.push_back(item);
  return out;
}

// A matrix of plausible random weights.
PackedMatrix make(DType type, int64_t rows, int64_t cols, Isa isa, ThreadPool& pool) {
  const DTypeInfo& info = dtype_info(type);
  std::vector<uint8_t> bytes(dtype_bytes(type, static_cast<size_t>(rows * cols)));
  std::mt19937 rng(1);
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const uint32_t v = rng();
    std::memcpy(&bytes[i], &v, 4);
  }
  // Numbers that are f16 or bf16 must be finite: clear the top bits of every even pair of bytes' exponent.
  if (info.block_size == 1)
    for (size_t i = (type == DType::f32 ? 3 : 1); i < bytes.size(); i += type == DType::f32 ? 4 : 2) bytes[i] &= 0xbf;
  else
    for (size_t b = 0; b < bytes.size(); b += info.block_bytes)
      for (int at : {0, 2, 80, 82, 108, 208})
        if (at + 2 <= info.block_bytes) bytes[b + at + 1] = 0x20;
  TensorView view{"bench", type, {rows, cols}, std::as_bytes(std::span(bytes))};
  MatrixSpec spec{"bench", {{&view, 0}}, rows, cols};
  return pack_matrix(spec, isa, nullptr, &pool);
}

struct Scratch {
  explicit Scratch(size_t bytes) : p(allocate_weights(bytes)) { std::memset(p.get(), 0, bytes); }
  std::shared_ptr<std::byte> p;
};

// Bytes a second that the workers read together from `bytes` of memory.
double read_bandwidth(ThreadPool& pool, size_t bytes, double seconds) {
  Scratch memory(bytes);
  const auto* words = reinterpret_cast<const uint64_t*>(memory.p.get());
  const int64_t chunk = 1 << 14;  // words
  const int64_t chunks = static_cast<int64_t>(bytes) / 8 / chunk;
  double best = 1e9;
  volatile uint64_t sink = 0;
  for (int run = 0; run < static_cast<int>(seconds * 300); ++run) {
    pool.run([&](Worker& worker) {
      const double start = now();
      uint64_t sums[16] = {};
      worker.share(chunks, [&](int64_t c) {
        const uint64_t* p = words + c * chunk;
        for (int64_t i = 0; i < chunk; i += 16)
          for (int j = 0; j < 16; ++j) sums[j] ^= p[i + j];
      });
      for (uint64_t s : sums) sink = sink ^ s;
      if (worker.index() == 0) best = std::min(best, now() - start);
    });
  }
  return static_cast<double>(bytes) / best;
}

struct Layer {
  PackedMatrix qkv, o, gate, up, down;
};

struct Shape {
  int64_t rows, cols;
};

int run(int argc, char** argv) {
  int threads = ThreadPool::available_cpus();
  std::string isa_text, types = "q4_0,q4_1,q5_0,q5_1,q8_0,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_nl,f32,f16,bf16",
                        rows_text = "1,2,4,8,16,64,512", shape_text;
  double seconds = 0.2, memory = 80e6, outliers = 0.0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads")
      threads = std::atoi(value.c_str());
    else if (flag == "--isa")
      isa_text = value;
    else if (flag == "--types")
      types = value;
    else if (flag == "--rows")
      rows_text = value;
    else if (flag == "--shape")
      shape_text = value;
    else if (flag == "--clock")
      cpu_clock = value == "cpu";
    else if (flag == "--mb")
      memory = std::atof(value.c_str()) * 1e6;
    else if (flag == "--outliers")
      outliers = std::atof(value.c_str());
    else if (flag == "--ms")
      seconds = std::atof(value.c_str()) / 1000;
    else
      throw_error(ErrorKind::bad_call, "unknown flag {}; see the top of bench/linear_bench.cc", flag);
  }
  const Isa isa = choose_isa(isa_text);
  ThreadPool pool(threads);
  const double roof = read_bandwidth(pool, size_t{96} << 20, 0.5);
  std::printf("isa %s, %d threads, memory reads at %.1f GB/s (96 MiB)\n", std::string(isa_name(isa)).c_str(), threads,
              roof * 1e-9);
  std::printf("%-6s %-14s %6s %10s %9s %9s %7s\n", "type", "shape", "rows", "us", "GB/s", "GMAC/s", "% read");

  for (const std::string& name : split(types)) {
    const std::optional<DType> type = parse_dtype(name);
    if (!type) throw_error(ErrorKind::bad_call, "--types {}: no such format", name);
    const bool model = shape_text.empty();
    std::vector<Layer> layers;
    std::vector<PackedMatrix> copies;
    Shape shape{0, 0};
    double bytes = 0, macs = 0;
    int64_t widest = 0;
    if (model) {
      // K-quants need multiples of 256 columns.
      const int64_t hidden = dtype_info(*type).block_size == 256 ? 512 : 576;
      const int count = is_block_quantized(*type) ? 30 : 10;
      for (int i = 0; i < count; ++i)
        layers.push_back({make(*type, 960, hidden, isa, pool), make(*type, 576, hidden, isa, pool),
                          make(*type, 1536, hidden, isa, pool), make(*type, 1536, hidden, isa, pool),
                          make(*type, 576, 1536, isa, pool)});
      for (const Layer& l : layers)
        for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate, &l.up, &l.down}) {
          bytes += static_cast<double>(w->bytes());
          macs += static_cast<double>(w->rows() * w->cols());
        }
      widest = 1536;
      shape = {0, hidden};
    } else {
      if (std::sscanf(shape_text.c_str(), "%ldx%ld", &shape.rows, &shape.cols) != 2)
        throw_error(ErrorKind::bad_call, "--shape {}: expected ROWSxCOLS", shape_text);
      do {
        copies.push_back(make(*type, shape.rows, shape.cols, isa, pool));
        bytes += static_cast<double>(copies.back().bytes());
        macs += static_cast<double>(shape.rows * shape.cols);
      } while (bytes < memory);
      widest = std::max(shape.rows, shape.cols);
    }
    for (const std::string& rows_name : split(rows_text)) {
      const int64_t rows = std::atol(rows_name.c_str());
      const size_t plane = static_cast<size_t>(rows * widest) * 4;
      Scratch in(plane), out(plane), scratch(linear_scratch_bytes(rows, widest, threads));
      auto* x = reinterpret_cast<float*>(in.p.get());
      auto* y = reinterpret_cast<float*>(out.p.get());
      std::mt19937 rng(2);
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < rows * widest; ++i) x[i] = normal(rng);
      std::bernoulli_distribution chosen(outliers);
      for (int64_t i = 0; i < rows * widest; i += 32)
        if (chosen(rng)) x[i + static_cast<int64_t>(rng() % 32)] = 12.0f;
      auto product = [&](const PackedMatrix& w, Worker& worker) {
        LinearArgs args;
        args.weight = &w;
        args.in = x;
        args.rows = rows;
        args.in_stride = w.cols();
        args.out = y;
        args.out_stride = w.rows();
        args.scratch = scratch.p.get();
        linear(args, worker);
      };
      // Small work is repeated inside one job: starting a job is not what is measured.
      const int repeats =
          static_cast<int>(std::clamp(3e8 / (bytes + macs / 8 * static_cast<double>(rows)), 1.0, 1000.0));
      double best = 1e9, spent = 0;
      auto pass = [&] {
        pool.run([&](Worker& worker) {
          const double start = now();
          for (int i = 0; i < repeats; ++i)
            for (const PackedMatrix& w : copies) product(w, worker);
          for (const Layer& l : layers) {
            product(l.qkv, worker);
            product(l.o, worker);
            LinearArgs args;
            args.weight = &l.gate;
            args.up = &l.up;
            args.in = x;
            args.rows = rows;
            args.in_stride = shape.cols;
            args.out = y;
            args.out_stride = 1536;
            args.scratch = scratch.p.get();
            args.activation = ActivationKind::silu;
            linear(args, worker);
            product(l.down, worker);
          }
          if (worker.index() != 0) return;
          spent = now() - start;
          best = std::min(best, spent / (model ? 1 : repeats));
        });
      };
      pass();
      for (double total = 0; total < seconds; total += spent) pass();
      std::printf("%-6s %-14s %6ld %10.1f %9.2f %9.1f %6.0f%%\n", name.c_str(), model ? "smollm2" : shape_text.c_str(),
                  long(rows), best * 1e6, bytes / best * 1e-9, macs * double(rows) / best * 1e-9,
                  100 * bytes / best / roof);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ingot::cpu

int main(int argc, char** argv) {
  try {
    return ingot::cpu::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "linear_bench: %s\n", e.what());
    return 2;
  }
}
