#include "backend/cpu/device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/select.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sampling.h"
#include "backend/cpu/step.h"
#include "core/error.h"
#include "core/threads.h"

namespace ingot {
namespace {

using namespace cpu;
using Clock = std::chrono::steady_clock;

double micros(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

// One recorded operation. The three kinds of attention share their arguments.
struct PrepareCall {};
struct DecodeCall : AttentionCall {};
struct WriteCall : AttentionCall {};
struct PrefillCall : AttentionCall {};
struct SampleCall {
  const float* logits = nullptr;
};
using Command =
    std::variant<PrepareCall, EmbedCall, RopeTableCall, NormCall, LinearArgs, GatedLinearArgs, RouteCall,
                 ExpertLinearArgs, ExpertSumCall, DecodeCall, WriteCall, PrefillCall, GatherCall, SampleCall>;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

class Cpu final : public CpuBackend {
 public:
  explicit Cpu(const CpuOptions& options)
      : isa_(choose_isa(options.isa)),
        kernels_(select_kernels(isa_)),
        drop_pages_(options.drop_pages),
        pool_(options.threads > 0 ? options.threads : ThreadPool::available_cpus()) {
    info_.name = "cpu";
    info_.description = fmt::format("{}, {} thread{}", isa_name(isa_), pool_.size(), pool_.size() == 1 ? "" : "s");
    info_.activation = DType::f32;
    info_.memory_bytes = available_memory();
    reserve_commands(512);
  }

  ~Cpu() override {
    for (Ring& ring : rings_)
      if (ring.state == State::submitted) pool_.wait(ring.job);
  }

  const DeviceInfo& info() const override { return info_; }
  DeviceCounters counters() const override { return counters_; }

  std::optional<std::string> decline(const ModelConfig& config, const KvLayout& kv) const override {
    return decline_model(config, kv);
  }

  // -- load --

  size_t matrix_bytes(const MatrixSpec& spec) const override { return packed_bytes(spec, isa_); }

  WeightId load_matrix(const MatrixSpec& spec) override {
    ++counters_.allocations;
    weights_.push_back({pack_matrix(spec, isa_, drop_pages_, &pool_), {}});
    return WeightId{static_cast<int32_t>(weights_.size()) - 1};
  }

  WeightId load_vector(const std::string& name, std::span<const float> values) override {
    if (values.empty()) throw_error(ErrorKind::bad_file, "{}: the vector is empty", name);
    ++counters_.allocations;
    weights_.push_back({PackedMatrix(), std::vector<float>(values.begin(), values.end())});
    return WeightId{static_cast<int32_t>(weights_.size()) - 1};
  }

  void create_scratch(size_t bytes) override {
    scratch_ = allocate(bytes, true);
    // Activations in the form of the kernels take at most one and a half times their size as floats, for each worker
    // when there are few rows; those of experts are gathered first. Touched as far as used.
    linear_scratch_ = allocate(3 * bytes + (size_t{1} << 20) * static_cast<size_t>(pool_.size()), false);
  }
  size_t work_bytes(int64_t rows, int64_t cols) const override {
    return linear_scratch_bytes(rows, cols, pool_.size());
  }

  void create_kv_cache(const KvLayout& layout) override {
    ++counters_.allocations;
    cache_ = std::make_unique<KvCache>(layout);
    attention_ = std::make_unique<Attention>(*cache_, kernels_, pool_.size());
    reserve_commands(static_cast<size_t>(16 * layout.layers + 256));
    create_plans();
  }

  size_t sampler_bytes(const SamplerLayout& layout) const override { return Sampler::bytes(layout, pool_.size()); }

  void create_sampler(const SamplerLayout& layout) override {
    ++counters_.allocations;
    sampler_ = std::make_unique<Sampler>(layout, kernels_, pool_.size());
    sampler_->create_rows(output_layout_.max_rows);
  }

  void create_io(size_t stage_bytes, const OutputLayout& output) override {
    output_layout_ = output;
    for (Ring& ring : rings_) {
      ring.stage = allocate(std::max<size_t>(stage_bytes, 64), false);
      ring.output = allocate(std::max<size_t>(output.bytes, 64), false);
    }
    stage_bytes_ = stage_bytes;
    if (sampler_) sampler_->create_rows(output.max_rows);
    create_plans();
  }

  // -- outside a step --

  void write_scratch(Region region, std::span<const std::byte> bytes) override {
    idle("write_scratch");
    std::memcpy(bytes_at(region, bytes.size()), bytes.data(), bytes.size());
  }
  void read_scratch(Region region, std::span<std::byte> bytes) override {
    idle("read_scratch");
    ++counters_.readbacks;
    std::memcpy(bytes.data(), bytes_at(region, bytes.size()), bytes.size());
  }
  void write_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override {
    idle("write_cache");
    cache(layer).write(layer, value, bytes);
  }
  void read_cache(int64_t layer, bool value, std::span<std::byte> bytes) override {
    idle("read_cache");
    ++counters_.readbacks;
    cache(layer).read(layer, value, bytes);
  }

  // -- a step --

  std::span<std::byte> stage(int ring) override { return {rings_[ring & 1].stage.data(), stage_bytes_}; }

  void begin(const StagedStep& step) override {
    encoding_ = nullptr;  // a step whose encoding threw is dropped
    Ring& ring = rings_[step.ring & 1];
    if (ring.state != State::idle)
      throw_error(ErrorKind::internal, "cpu: ring {} is still in flight; wait for it first", step.ring);
    ring.view = StepView(step, ring.stage.data());
    ring.plan = attention_ ? &attention_->plan(ring.view) : nullptr;
    ring.commands.clear();
    ring.times = {};
    ring.fail = false;
    encoding_ = &ring;
    if (step.zeros > 0 || step.copies > 0 || step.resets > 0) {
      if (!cache_ && step.zeros + step.copies > 0)
        throw_error(ErrorKind::internal, "cpu: block copies without a KV cache");
      record(PrepareCall{});
    }
  }

  void embed(const EmbedOp& op) override {
    const PackedMatrix& table = matrix(op.table);
    const int64_t tokens = step().tokens;
    if (tokens == 0) return;
    EmbedCall call;
    call.table = &table;
    call.positions = op.position_table ? &matrix(op.position_table) : nullptr;
    call.scale = op.scale;
    call.out = floats(op.out, tokens * table.cols());
    if (call.positions != nullptr) {
      const size_t need = static_cast<size_t>(table.cols() * pool_.size()) * sizeof(float);
      if (call.positions->cols() != table.cols() || need > linear_scratch_.size())
        throw_error(ErrorKind::internal, "cpu: position table of {} columns for embeddings of {}",
                    call.positions->cols(), table.cols());
      call.scratch = linear_scratch_.as<float>();
    }
    encoding_->times.weight_bytes += table.bytes() / static_cast<size_t>(table.rows()) * static_cast<size_t>(tokens);
    record(call);
  }

  void rope_table(const RopeTableOp& op) override {
    const std::vector<float>& freqs = vector(op.inv_freq);
    const int64_t pairs = static_cast<int64_t>(freqs.size());
    if (step().tokens == 0) return;
    record(RopeTableCall{freqs.data(), pairs, op.factor, floats(op.out, step().tokens * pairs * 2)});
  }

  void norm(const NormOp& op) override {
    check_encoding();
    if (op.rows == 0) return;
    NormCall call;
    call.kind = op.kind;
    call.eps = op.eps;
    call.rows = op.rows;
    call.dim = op.dim;
    call.in = floats(op.in, op.rows * op.dim);
    call.weight = optional_vector(op.weight, op.dim);
    call.bias = optional_vector(op.bias, op.dim);
    call.out = floats(op.out, op.rows * op.dim);
    if (op.accumulate) call.scratch = work<float>(static_cast<size_t>(op.dim * pool_.size()) * sizeof(float));
    record(call);
  }

  void linear(const LinearOp& op) override {
    check_encoding();
    if (op.rows == 0) return;
    const PackedMatrix& weight = matrix(op.weight);
    LinearArgs args;
    args.weight = &weight;
    args.rows = op.rows;
    args.in = floats(op.in, op.rows * weight.cols());
    args.in_stride = weight.cols();
    args.bias = optional_vector(op.bias, weight.rows());
    args.out = floats(op.out, op.rows * weight.rows());
    args.out_stride = weight.rows();
    args.accumulate = op.accumulate;
    args.activation = op.activation;
    args.scratch = linear_scratch(op.rows, weight.cols());
    encoding_->times.weight_bytes += weight.bytes();
    record(args);
  }

  void gated_linear(const GatedLinearOp& op) override {
    check_encoding();
    if (op.rows == 0) return;
    const PackedMatrix& gate = matrix(op.gate);
    const PackedMatrix& up = matrix(op.up);
    GatedLinearArgs args;
    args.gate = &gate;
    args.up = &up;
    args.rows = op.rows;
    args.in = floats(op.in, op.rows * gate.cols());
    args.in_stride = gate.cols();
    args.gate_bias = optional_vector(op.gate_bias, gate.rows());
    args.up_bias = optional_vector(op.up_bias, up.rows());
    args.activation = op.activation;
    args.out = floats(op.out, op.rows * gate.rows());
    args.out_stride = gate.rows();
    args.scratch = linear_scratch(op.rows, gate.cols());
    encoding_->times.weight_bytes += gate.bytes() + up.bytes();
    record(args);
  }

  void route(const RouteOp& op) override {
    check_encoding();
    const ExpertRoute& r = op.route;
    if (r.rows == 0) return;
    RouteCall call;
    call.rows = r.rows;
    call.experts = r.experts;
    call.per_token = r.per_token;
    call.normalize = op.normalize;
    call.logits = floats(op.logits, r.rows * r.experts);
    call.ids = words(r.ids, r.pairs());
    call.weights = floats(r.weights, r.pairs());
    call.order = words(r.order, r.pairs());
    call.places = words(r.places, r.pairs());
    call.starts = words(r.starts, r.experts + 1);
    record(call);
  }

  void expert_gated_linear(const ExpertGatedLinearOp& op) override {
    check_encoding();
    if (op.route.rows == 0) return;
    ExpertLinearArgs args = expert_args(op.route, matrix(op.gate), op.out);
    args.up = &matrix(op.up);
    args.activation = op.activation;
    args.order = words(op.route.order, op.route.pairs());
    args.per_token = op.route.per_token;
    args.in = floats(op.in, op.route.rows * args.weight->cols());
    record(args);
  }

  void expert_linear(const ExpertLinearOp& op) override {
    check_encoding();
    if (op.route.rows == 0) return;
    ExpertLinearArgs args = expert_args(op.route, matrix(op.weight), op.out);
    args.in = floats(op.in, op.route.pairs() * args.weight->cols());
    record(args);
  }

  void expert_sum(const ExpertSumOp& op) override {
    check_encoding();
    const ExpertRoute& r = op.route;
    if (r.rows == 0) return;
    record(ExpertSumCall{r.rows, r.per_token, op.dim, floats(r.weights, r.pairs()), words(r.places, r.pairs()),
                         floats(op.in, r.pairs() * op.dim), floats(op.out, r.rows * op.dim)});
  }

  void decode_attention(const DecodeAttentionOp& op) override {
    if (step().decode_rows == 0) return;
    DecodeCall call;
    fill(call, op.layer, op.shape, op.qkv);
    fill_rotation(call, op.rope, op.q_norm, op.k_norm, op.norm_eps);
    call.out = floats(op.out, step().tokens * op.shape.heads * op.shape.head_size);
    count_kv_bytes(op.shape, 0, step().decode_rows);
    record(call);
  }

  void prefill_write(const PrefillWriteOp& op) override {
    if (step().tokens == step().decode_rows) return;
    WriteCall call;
    fill(call, op.layer, op.shape, op.qkv);
    fill_rotation(call, op.rope, op.q_norm, op.k_norm, op.norm_eps);
    record(call);
  }

  void prefill_attention(const PrefillAttentionOp& op) override {
    if (step().tokens == step().decode_rows) return;
    PrefillCall call;
    fill(call, op.layer, op.shape, op.qkv);
    call.out = floats(op.out, step().tokens * op.shape.heads * op.shape.head_size);
    count_kv_bytes(op.shape, step().decode_rows, step().seqs);
    record(call);
  }

  void gather_rows(const GatherRowsOp& op) override {
    if (step().samples == 0) return;
    record(GatherCall{op.dim, floats(op.in, step().tokens * op.dim), floats(op.out, step().samples * op.dim)});
  }

  void sample(const SampleOp& op) override {
    if (step().samples == 0) return;
    if (!sampler_) throw_error(ErrorKind::internal, "cpu: sample() without create_sampler()");
    if (step().samples > output_layout_.max_rows)
      throw_error(ErrorKind::internal, "cpu: {} sampled rows, room for {}", step().samples, output_layout_.max_rows);
    record(SampleCall{floats(op.logits, step().samples * op.vocab)});
  }

  void submit() override {
    Ring* ring = encoding_;
    if (ring == nullptr) throw_error(ErrorKind::internal, "cpu: submit() without begin()");
    encoding_ = nullptr;
    ring->fail = fail_next_.exchange(false);
    ring->step = next_step_++;
    ring->state = State::submitted;
    ++counters_.submissions;
    ring->job = pool_.post([this, ring](Worker& worker) { run(*ring, worker); });
  }

  StepTimes wait(int index) override {
    Ring& ring = rings_[index & 1];
    if (ring.state != State::submitted) throw_error(ErrorKind::internal, "cpu: ring {} has no step to wait for", index);
    ++counters_.waits;
    pool_.wait(ring.job);
    ring.state = State::idle;
    if (ring.fail)
      throw_error(ErrorKind::device, "cpu: the step failed on the device; its outputs are lost, submit it again");
    return ring.times;
  }

  std::span<const std::byte> output(int ring) override {
    ++counters_.readbacks;
    return {rings_[ring & 1].output.data(), output_layout_.bytes};
  }

  void inject_failure() override { fail_next_ = true; }

 private:
  enum class State { idle, submitted };
  struct Weight {
    PackedMatrix matrix;
    std::vector<float> vector;
  };
  struct Ring {
    State state = State::idle;
    StepView view;
    const AttentionPlan* plan = nullptr;
    std::vector<Command> commands;  // fixed capacity
    uint64_t step = 0;
    uint64_t job = 0;
    bool fail = false;
    StepTimes times;
    Pages stage, output;
  };

  Pages allocate(size_t bytes, bool huge) {
    ++counters_.allocations;
    return Pages(bytes, huge);
  }

  void reserve_commands(size_t n) {
    for (Ring& ring : rings_) ring.commands.reserve(n);
  }

  void create_plans() {
    if (!attention_ || stage_bytes_ == 0) return;
    // Every sequence takes at least two words of the stage.
    attention_->create_plans(static_cast<int64_t>(stage_bytes_ / 8));
  }

  // -- encoding --

  void check_encoding() const {
    if (encoding_ == nullptr) throw_error(ErrorKind::internal, "cpu: an operation outside begin() and submit()");
  }
  const StagedStep& step() const {
    check_encoding();
    return encoding_->view.step();
  }

  template <typename T>
  void record(const T& call) {
    if (encoding_->commands.size() == encoding_->commands.capacity())
      throw_error(ErrorKind::internal, "cpu: more than {} operations in a step", encoding_->commands.capacity());
    encoding_->commands.emplace_back(call);
    ++counters_.dispatches;
  }

  std::byte* bytes_at(Region region, size_t need) const {
    if (need > region.bytes || region.offset > scratch_.size() || need > scratch_.size() - region.offset)
      throw_error(ErrorKind::internal, "cpu: {} bytes at scratch offset {} do not fit (region {}, scratch {})", need,
                  region.offset, region.bytes, scratch_.size());
    return scratch_.data() + region.offset;
  }
  float* floats(Region region, int64_t n) const {
    return reinterpret_cast<float*>(bytes_at(region, static_cast<size_t>(n) * sizeof(float)));
  }
  int32_t* words(Region region, int64_t n) const {
    return reinterpret_cast<int32_t*>(bytes_at(region, static_cast<size_t>(n) * sizeof(int32_t)));
  }

  const Weight& weight(WeightId id) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= weights_.size())
      throw_error(ErrorKind::internal, "cpu: no weight {}", id.index);
    return weights_[static_cast<size_t>(id.index)];
  }
  const PackedMatrix& matrix(WeightId id) const {
    const Weight& w = weight(id);
    if (!w.vector.empty()) throw_error(ErrorKind::internal, "cpu: weight {} is a vector, not a matrix", id.index);
    return w.matrix;
  }
  const std::vector<float>& vector(WeightId id) const {
    const Weight& w = weight(id);
    if (w.vector.empty()) throw_error(ErrorKind::internal, "cpu: weight {} is a matrix, not a vector", id.index);
    return w.vector;
  }
  const float* optional_vector(WeightId id, int64_t size) const {
    if (!id) return nullptr;
    const std::vector<float>& v = vector(id);
    if (static_cast<int64_t>(v.size()) != size)
      throw_error(ErrorKind::internal, "cpu: weight {} has {} values, not {}", id.index, v.size(), size);
    return v.data();
  }

  // The work memory that every operation uses anew.
  template <typename T>
  T* work(size_t bytes) const {
    if (bytes > linear_scratch_.size())
      throw_error(ErrorKind::internal, "cpu: {} bytes of work memory are needed, there are {}", bytes,
                  linear_scratch_.size());
    return linear_scratch_.as<T>();
  }
  void* linear_scratch(int64_t rows, int64_t cols) const {
    return work<std::byte>(linear_scratch_bytes(rows, cols, pool_.size()));
  }

  ExpertLinearArgs expert_args(const ExpertRoute& route, const PackedMatrix& weight, Region out) const {
    ExpertLinearArgs args;
    args.weight = &weight;
    args.experts = route.experts;
    args.rows = route.pairs();
    args.starts = words(route.starts, route.experts + 1);
    args.out = floats(out, route.pairs() * (weight.rows() / route.experts));
    args.scratch = work<std::byte>(expert_scratch_bytes(route.pairs(), weight.cols()));
    return args;
  }

  KvCache& cache(int64_t layer) const {
    if (!cache_ || layer < 0 || layer >= cache_->layout().layers)
      throw_error(ErrorKind::internal, "cpu: no layer {} in the KV cache", layer);
    return *cache_;
  }

  void fill(AttentionCall& call, int64_t layer, const AttentionShape& shape, Region qkv) const {
    const KvLayout& layout = cache(layer).layout();
    if (shape.kv_heads != layout.kv_heads || shape.head_size != layout.head_size)
      throw_error(ErrorKind::internal, "cpu: attention of {} KV heads of {} on a cache of {} of {}", shape.kv_heads,
                  shape.head_size, layout.kv_heads, layout.head_size);
    call.layer = layer;
    call.shape = shape;
    call.qkv = floats(qkv, step().tokens * (shape.heads + 2 * shape.kv_heads) * shape.head_size);
  }
  void fill_rotation(AttentionCall& call, Region rope, WeightId q_norm, WeightId k_norm, float eps) const {
    if (call.shape.rope_dims > 0) call.rope = floats(rope, step().tokens * call.shape.rope_dims);
    call.q_norm = optional_vector(q_norm, call.shape.head_size);
    call.k_norm = optional_vector(k_norm, call.shape.head_size);
    call.norm_eps = eps;
  }

  // K and V that sequences [begin, end) look at, once each.
  void count_kv_bytes(const AttentionShape& shape, int32_t begin, int32_t end) {
    uint64_t tokens = 0;
    const int32_t* start = encoding_->view.query_start();
    for (int32_t s = begin; s < end; ++s) {
      const int64_t length = encoding_->view.seq_lens()[s];
      const int64_t rows = start[s + 1] - start[s];
      tokens += static_cast<uint64_t>(shape.window > 0 ? std::min(length, shape.window + rows - 1) : length);
    }
    encoding_->times.kv_bytes += 2 * tokens * static_cast<uint64_t>(shape.kv_heads) * cache_->layout().row_bytes();
  }

  void idle(const char* call) const {
    for (const Ring& ring : rings_)
      if (ring.state == State::submitted)
        throw_error(ErrorKind::internal, "cpu: {}() while a step is in flight; wait for it first", call);
  }

  // -- running, on the workers --

  void run(Ring& ring, Worker& worker) {
    Clock::time_point start;
    if (worker.index() == 0) {
      start = Clock::now();
      ring.times.gap_us = last_end_ == Clock::time_point() ? 0.0 : micros(start - last_end_);
    }
    if (!ring.fail)
      for (const Command& command : ring.commands) run_command(command, ring, worker);
    if (worker.index() == 0) {
      last_end_ = Clock::now();
      ring.times.run_us = micros(last_end_ - start);
    }
  }

  void run_command(const Command& command, Ring& ring, Worker& worker) {
    std::visit(Overloaded{
                   [&](const PrepareCall&) { prepare_step(ring.view, cache_.get(), sampler_.get(), worker); },
                   [&](const EmbedCall& call) { cpu::embed(call, ring.view, sampler_.get(), ring.step, worker); },
                   [&](const RopeTableCall& call) { cpu::rope_table(call, ring.view, worker); },
                   [&](const NormCall& call) { cpu::norm(call, kernels_, worker); },
                   [&](const LinearArgs& args) { cpu::linear(args, worker); },
                   [&](const GatedLinearArgs& args) { cpu::gated_linear(args, worker); },
                   [&](const RouteCall& call) { cpu::route(call, worker); },
                   [&](const ExpertLinearArgs& args) {
                     const size_t bytes = cpu::expert_linear(args, worker);
                     if (worker.index() == 0) ring.times.weight_bytes += bytes;
                   },
                   [&](const ExpertSumCall& call) { cpu::expert_sum(call, worker); },
                   [&](const DecodeCall& call) { attention_->decode(call, ring.view, *ring.plan, worker); },
                   [&](const WriteCall& call) { attention_->prefill_write(call, ring.view, worker); },
                   [&](const PrefillCall& call) { attention_->prefill(call, ring.view, *ring.plan, worker); },
                   [&](const GatherCall& call) { cpu::gather_rows(call, ring.view, worker); },
                   [&](const SampleCall& call) {
                     sampler_->sample(call.logits, ring.view, output_layout_, ring.output.data(), ring.step, worker);
                   },
               },
               command);
  }

  const Isa isa_;
  const Kernels& kernels_;
  DeviceInfo info_;
  DeviceCounters counters_;
  std::function<void(std::span<const std::byte>)> drop_pages_;

  std::vector<Weight> weights_;
  Pages scratch_, linear_scratch_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<Sampler> sampler_;
  OutputLayout output_layout_;
  size_t stage_bytes_ = 0;

  Ring rings_[2];
  Ring* encoding_ = nullptr;
  uint64_t next_step_ = 1;
  std::atomic<bool> fail_next_{false};
  Clock::time_point last_end_;  // worker 0 only

  ThreadPool pool_;  // last: its threads use everything above
};

}  // namespace

std::unique_ptr<CpuBackend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<Cpu>(options); }

}  // namespace ingot
