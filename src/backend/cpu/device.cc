#include "backend/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/select.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/packed_cache.h"
#include "backend/cpu/profile.h"
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
        profiling_(options.profile),
        drop_pages_(options.drop_pages),
        context_{.kernels = cpu::select_kernels(isa_), .all = options.group},
        pool_(options.threads > 0 ? options.threads : ThreadPool::available_cpus()) {
    describe({.name = "cpu",
              .description = fmt::format("{}, {}", cpu::isa_name(isa_), counted(pool_.size(), "thread")),
              .numerics = std::string(cpu::isa_name(isa_)),
              .activation = DType::f32,
              .memory_bytes = available_memory_bytes(),
              .path = std::string(cpu::isa_name(isa_))},
             {.runs = "the CPU runs", .head_size = kMaxHeadSize, .group = cpu::kMaxAttentionRows});
    if (options.group != nullptr) {
      context_.group = layer_peers(*options.group, options.tp);
      context_.stages = stage_peers(*options.group, options.tp);
    }
    reserve_ops(512);
  }

  ~Cpu() override {
    for (size_t ring = 0; ring < rings_.size(); ++ring)
      if (in_flight(ring)) pool_.wait(rings_[ring].job);
  }

  bool keep_packed(const PackedCacheOptions& options) override {
    packed_ = std::make_unique<cpu::PackedCache>(options);
    return true;
  }
  void end_weights() override {
    if (packed_) packed_->end_load();
  }
  uint64_t found_bytes() const override { return packed_ ? packed_->found_bytes() : 0; }

  Profile take_profile() override { return std::exchange(profile_, {}); }

  size_t matrix_bytes(const MatrixSpec& spec) const override { return packed_bytes(spec, isa_); }
  size_t work_bytes(int64_t rows, int64_t cols) const override {
    return cpu::linear_scratch_bytes(rows, cols, pool_.size());
  }
  size_t sampler_bytes(const SamplerLayout& layout) const override { return cpu::Sampler::bytes(layout, pool_.size()); }

 private:
  struct Ring {
    cpu::RunningStep step;
    std::vector<Op> ops;              // of fixed capacity
    std::vector<cpu::TimedOp> timed;  // one an operation, of a profile
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
    const cpu::PackedMatrix& matrix = context_.weights.back().matrix;
    if (packed_) packed_->add(spec, matrix);
    return matrix.bytes();
  }
  std::optional<size_t> add_found(const MatrixSpec& spec) override {
    std::optional<cpu::PackedMatrix> found = packed_ ? packed_->find(spec, isa_, pool_) : std::nullopt;
    if (!found) return std::nullopt;
    ++counters_.allocations;
    context_.weights.push_back({std::move(*found), {}});
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

  std::vector<std::span<std::byte>> make_io(size_t stage_bytes, const OutputLayout& output, int rings) override {
    const size_t ops = rings_[0].ops.capacity();
    rings_.resize(static_cast<size_t>(rings));
    reserve_ops(ops);
    std::vector<std::span<std::byte>> stages;
    for (Ring& ring : rings_) {
      ring.stage = allocate(std::max<size_t>(stage_bytes, 64), false);
      ring.output = allocate(std::max<size_t>(output.bytes, 64), false);
      stages.emplace_back(ring.stage.data(), stage_bytes);
    }
    stage_bytes_ = stage_bytes;
    if (context_.sampler) context_.sampler->create_rows(output.max_rows);
    reserve_tasks();
    return stages;
  }

  void reserve_tasks() {
    // Every sequence takes at least two words of the stage; what is beyond is for the states that a head reads.
    constexpr int64_t kMostSequences = 1 << 19;
    if (context_.attention && stage_bytes_ > 0)
      context_.attention->reserve_tasks(std::min(static_cast<int64_t>(stage_bytes_ / 8), kMostSequences),
                                        rings_.size());
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
    ring.timed.clear();
    counted_bytes_ = 0;
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
    if (profiling_) {
      const uint64_t bytes = has_.times.weight_bytes + has_.times.kv_bytes;
      encoding_->timed.push_back(
          cpu::timed_op(op, has_, encoding_->step.view, bytes - counted_bytes_, isa_ == cpu::Isa::avx512_bf16));
      counted_bytes_ = bytes;
    }
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
    if (profiling_) {
      for (const cpu::TimedOp& op : rings_[index].timed) profile_.add(op.name, op.line);
      profile_.end_step();
    }
    const StepTimes& ran = rings_[index].step.times;
    times.run_us = ran.run_us;
    times.gap_us = ran.gap_us;
    times.move_us = ran.move_us;
    times.weight_bytes += ran.weight_bytes;
    times.wire_bytes = ran.wire_bytes;
    times.wire_messages = ran.wire_messages;
    times.collectives = ran.collectives;
  }

  std::span<const std::byte> output_of(int index) override { return {rings_[index].output.data(), has_.output.bytes}; }

  // On every worker.
  void run(Ring& ring, Worker& worker) {
    const bool first = worker.index() == 0;
    const Clock::time_point start = Clock::now();
    if (first) ring.step.times.gap_us = last_end_ == Clock::time_point() ? 0.0 : micros(start - last_end_);
    const cpu::Job job{context_, ring.step, worker};
    if (profiling_ && first) lap_ = start, ring_bytes_ = 0;
    for (size_t i = 0; i < ring.ops.size(); ++i) {
      std::visit([&](const auto& one) { cpu::run(one, job); }, ring.ops[i]);
      if (profiling_ && first) note_time(ring, i);
    }
    if (!first) return;
    last_end_ = Clock::now();
    ring.step.times.run_us = micros(last_end_ - start);
  }

  // An operation is complete on every worker when it returns on the first.
  void note_time(Ring& ring, size_t op) {
    const Clock::time_point now = Clock::now();
    Profile::Line& line = ring.timed[op].line;
    line.seconds = micros(now - lap_) * 1e-6;
    // Which experts have rows is known only now.
    line.bytes += ring.step.times.weight_bytes - ring_bytes_;
    ring_bytes_ = ring.step.times.weight_bytes;
    lap_ = now;
  }

  const cpu::Isa isa_;
  const bool profiling_;
  DropPages drop_pages_;
  cpu::Context context_;
  size_t stage_bytes_ = 0;
  std::deque<Ring> rings_ = std::deque<Ring>(2);
  Ring* encoding_ = nullptr;
  uint64_t next_step_ = 1;
  Clock::time_point last_end_;  // the first worker's
  Profile profile_;
  uint64_t counted_bytes_ = 0;  // of the operations encoded so far
  Clock::time_point lap_;       // the first worker's, when the operation before ended
  uint64_t ring_bytes_ = 0;     // the first worker's, of experts so far
  std::unique_ptr<cpu::PackedCache> packed_;
  ThreadPool pool_;  // last: its threads use everything above
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<Cpu>(options); }

}  // namespace ingot
