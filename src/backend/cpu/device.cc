#include "backend/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/select.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/ops.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/threads.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxHeadSize = 512;

double micros(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

class Cpu final : public Backend {
 public:
  explicit Cpu(const CpuOptions& options)
      : Backend("cpu"),
        isa_(cpu::choose_isa(options.isa)),
        drop_pages_(options.drop_pages),
        context_{.kernels = cpu::select_kernels(isa_), .group = options.group},
        pool_(options.threads > 0 ? options.threads : ThreadPool::available_cpus()) {
    describe({.name = "cpu",
              .description = fmt::format("{}, {}", cpu::isa_name(isa_), counted(pool_.size(), "thread")),
              .numerics = std::string(cpu::isa_name(isa_)),
              .activation = DType::f32,
              .memory_bytes = available_memory_bytes(),
              .path = std::string(cpu::isa_name(isa_))},
             {.runs = "the CPU runs", .head_size = kMaxHeadSize, .group = cpu::kMaxAttentionRows, .groups = true});
    reserve_ops(512);
  }

  ~Cpu() override {
    for (int ring : {0, 1})
      if (in_flight(ring)) pool_.wait(rings_[ring].job);
  }

  size_t matrix_bytes(const MatrixSpec& spec) const override { return packed_bytes(spec, isa_); }
  size_t work_bytes(int64_t rows, int64_t cols) const override {
    return cpu::linear_scratch_bytes(rows, cols, pool_.size());
  }
  size_t sampler_bytes(const SamplerLayout& layout) const override { return cpu::Sampler::bytes(layout, pool_.size()); }

 private:
  struct Ring {
    cpu::RunningStep step;
    std::vector<Op> ops;  // of fixed capacity
    uint64_t job = 0;
    cpu::Pages stage, output;
  };

  cpu::Pages allocate(size_t bytes, bool huge) {
    ++counters_.allocations;
    return cpu::Pages(bytes, huge);
  }

  void reserve_ops(size_t n) {
    for (Ring& ring : rings_) ring.ops.reserve(n);
  }

  // -- load --

  size_t add_matrix(const MatrixSpec& spec) override {
    ++counters_.allocations;
    context_.weights.push_back({pack_matrix(spec, isa_, drop_pages_, &pool_), {}});
    return context_.weights.back().matrix.bytes();
  }
  size_t add_vector(const std::string&, std::span<const float> values) override {
    ++counters_.allocations;
    context_.weights.push_back({cpu::PackedMatrix(), std::vector<float>(values.begin(), values.end())});
    return values.size_bytes();
  }

  void make_scratch(size_t bytes) override {
    context_.scratch = allocate(bytes, true);
    // Activations in the form of the kernels take at most one and a half times their size as floats, for each worker
    // when there are few rows; those of experts are gathered first. Touched as far as used.
    context_.work = allocate(3 * bytes + (size_t{1} << 20) * static_cast<size_t>(pool_.size()), false);
  }

  void make_kv_cache(const KvLayout& layout) override {
    ++counters_.allocations;
    context_.cache = std::make_unique<cpu::KvCache>(layout);
    context_.attention = std::make_unique<cpu::Attention>(*context_.cache, context_.kernels, pool_.size());
    reserve_ops(static_cast<size_t>(16 * layout.layers + 256));
    reserve_tasks();
  }

  std::vector<std::span<std::byte>> make_host_blocks(int64_t count, size_t bytes) override {
    context_.host_blocks = allocate(static_cast<size_t>(count) * bytes, false);
    std::vector<std::span<std::byte>> blocks;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      blocks.emplace_back(context_.host_blocks.data() + i * bytes, bytes);
    return blocks;
  }

  void make_sampler(const SamplerLayout& layout) override {
    ++counters_.allocations;
    context_.sampler = std::make_unique<cpu::Sampler>(layout, context_.kernels, pool_.size());
    context_.sampler->create_rows(has_.output.max_rows);
  }

  std::array<std::span<std::byte>, 2> make_io(size_t stage_bytes, const OutputLayout& output) override {
    for (Ring& ring : rings_) {
      ring.stage = allocate(std::max<size_t>(stage_bytes, 64), false);
      ring.output = allocate(std::max<size_t>(output.bytes, 64), false);
    }
    stage_bytes_ = stage_bytes;
    if (context_.sampler) context_.sampler->create_rows(output.max_rows);
    reserve_tasks();
    return {std::span(rings_[0].stage.data(), stage_bytes), std::span(rings_[1].stage.data(), stage_bytes)};
  }

  void reserve_tasks() {
    // Every sequence takes at least two words of the stage.
    if (context_.attention && stage_bytes_ > 0)
      context_.attention->reserve_tasks(static_cast<int64_t>(stage_bytes_ / 8));
  }

  // -- outside a step --

  void copy_to(Region region, std::span<const std::byte> bytes) override {
    std::memcpy(context_.scratch.data() + region.offset, bytes.data(), bytes.size());
  }
  void copy_from(Region region, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), context_.scratch.data() + region.offset, bytes.size());
  }
  void copy_to_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override {
    context_.cache->write(layer, value, bytes);
  }
  void copy_from_cache(int64_t layer, bool value, std::span<std::byte> bytes) override {
    context_.cache->read(layer, value, bytes);
  }

  // -- a step --

  void begin_step(int index) override {
    Ring& ring = rings_[index];
    ring.ops.clear();
    ring.step = {.view = StepView(has_.step, ring.stage.data()), .layout = &has_.output, .output = ring.output.data()};
    if (context_.attention) ring.step.attention_tasks = &context_.attention->tasks(ring.step.view);
    encoding_ = &ring;
  }

  void take(const Op& op) override {
    const size_t work = std::visit([&](const auto& one) { return cpu::work_bytes(one, context_, pool_.size()); }, op);
    if (work > context_.work.size())
      throw_error(ErrorKind::internal, "cpu: {} bytes of work memory are needed, there are {}", work,
                  context_.work.size());
    if (encoding_->ops.size() == encoding_->ops.capacity())
      throw_error(ErrorKind::internal, "cpu: more than {} operations in a step", encoding_->ops.capacity());
    encoding_->ops.push_back(op);
    ++counters_.dispatches;
  }

  void submit_step(int index) override {
    Ring& ring = rings_[index];
    ring.step.number = next_step_++;
    ring.job = pool_.post([this, &ring](Worker& worker) { run(ring, worker); });
    ++counters_.submissions;
  }

  void finish_step(int index, StepTimes& times) override {
    pool_.wait(rings_[index].job);
    ++counters_.waits;
    const StepTimes& ran = rings_[index].step.times;
    times.run_us = ran.run_us;
    times.gap_us = ran.gap_us;
    times.weight_bytes += ran.weight_bytes;
    times.wire_bytes = ran.wire_bytes;
    times.wire_messages = ran.wire_messages;
  }

  std::span<const std::byte> output_of(int index) override { return {rings_[index].output.data(), has_.output.bytes}; }

  // On every worker.
  void run(Ring& ring, Worker& worker) {
    const bool first = worker.index() == 0;
    const Clock::time_point start = Clock::now();
    if (first) ring.step.times.gap_us = last_end_ == Clock::time_point() ? 0.0 : micros(start - last_end_);
    const cpu::Job job{context_, ring.step, worker};
    for (const Op& op : ring.ops) std::visit([&](const auto& one) { cpu::run(one, job); }, op);
    if (!first) return;
    last_end_ = Clock::now();
    ring.step.times.run_us = micros(last_end_ - start);
  }

  const cpu::Isa isa_;
  DropPages drop_pages_;
  cpu::Context context_;
  size_t stage_bytes_ = 0;
  Ring rings_[2];
  Ring* encoding_ = nullptr;
  uint64_t next_step_ = 1;
  Clock::time_point last_end_;  // the first worker's
  ThreadPool pool_;             // last: its threads use everything above
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<Cpu>(options); }

}  // namespace ingot
