#include "backend/metal/device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <softmetal/audit.h>

#include "backend/metal/attention.h"
#include "backend/metal/gpu.h"
#include "backend/metal/encoder.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/library.h"
#include "backend/metal/linear/linear.h"
#include "backend/metal/linear/gemm.h"
#include "backend/metal/memory.h"
#include "backend/metal/ops.h"
#include "backend/metal/sampling.h"
#include "backend/metal/step.h"
#include "core/error.h"
#include "core/threads.h"

namespace ingot {
namespace {

using namespace metal;

constexpr int32_t kStepTokens = 256;       // in one step: keeps the longest one well under the GPU's watchdog
constexpr int32_t kCudaStepTokens = 2048;  // no watchdog there
constexpr int kPackers = 16;               // threads that pack weights, at most
constexpr int64_t kPlannedDecodeRows = 64, kPlannedSplits = 8;  // of the partial results of attention

class Metal final : public MetalBackend {
 public:
  explicit Metal(const MetalOptions& options)
      : device_(open_device(options.cuda)),
        drop_pages_(options.drop_pages),
        pipelines_(device_.gpu, load_library(device_.gpu.get(), {options.resources, device_.bfloat})),
        memory_(device_.gpu, device_.queue),
        encoder_(pipelines_),
        gemm_(device_.gpu),
        context_{encoder_, memory_, options.activation, device_.family, device_.gpu->maxThreadgroupMemoryLength(), {}} {
    if (options.activation != DType::f16 && options.activation != DType::bf16)
      throw_error(ErrorKind::bad_call, "gpu: activations of {}: must be f16 or bf16", dtype_name(options.activation));
    if (options.activation == DType::bf16 && !device_.bfloat)
      throw_error(ErrorKind::declined, "gpu: bf16 needs macOS 14 or newer; use an f16 or quantized model");
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    fence_ = NS::TransferPtr(device_.gpu->newFence());
    if (options.profile) encoder_.profile(device_.queue.get());
    profiling_ = options.profile;
    capture_next_step_ = options.capture_next_step;
    info_.name = options.cuda ? "cuda" : "metal";
    info_.description = fmt::format("{}, {} activations", device_.name, dtype_name(options.activation));
    info_.activation = options.activation;
    if (!gemm_.name().empty()) info_.description += ", prefill by " + gemm_.name();
    context_.gemm = &gemm_;
    info_.memory_bytes = device_.memory_bytes;
    info_.step_tokens = options.cuda ? kCudaStepTokens : kStepTokens;
  }

  ~Metal() override {
    drop_encoding();
    close_step();
    for (Ring& ring : rings_)
      if (ring.commands) ring.commands->waitUntilCompleted();
    if (profiling_) fmt::print(stderr, "{}", profile_.table());
  }

  const DeviceInfo& info() const override { return info_; }
  DeviceCounters counters() const override {
    DeviceCounters counters = counters_;
    counters.allocations = memory_.allocations();
    counters.compiles = pipelines_.compiles();
    counters.dispatches = encoder_.dispatches();
    return counters;
  }
  uint64_t barriers() const override { return encoder_.barriers(); }

  std::optional<std::string> decline(const ModelConfig& config, const KvLayout& kv) const override {
    return decline_model(config, kv, device_.bfloat);
  }

  // -- load --

  size_t matrix_bytes(const MatrixSpec& spec) const override { return packed_bytes(spec); }

  WeightId load_matrix(const MatrixSpec& spec) override {
    if (!packers_) packers_ = std::make_unique<ThreadPool>(std::min(ThreadPool::available_cpus(), kPackers));
    weights_.push_back({pack_matrix(spec, memory_, drop_pages_, *packers_), {}, 0});
    return WeightId{static_cast<int32_t>(weights_.size()) - 1};
  }

  WeightId load_vector(const std::string& name, std::span<const float> values) override {
    if (values.empty()) throw_error(ErrorKind::bad_file, "{}: the vector is empty", name);
    const auto bytes = std::as_bytes(values);
    Weight weight;
    weight.vector = memory_.upload(bytes.size(), "weight " + name, 4, [&](size_t offset, std::span<std::byte> chunk) {
      std::copy_n(bytes.begin() + static_cast<int64_t>(offset), chunk.size(), chunk.begin());
    });
    weight.size = static_cast<int64_t>(values.size());
    weights_.push_back(std::move(weight));
    return WeightId{static_cast<int32_t>(weights_.size()) - 1};
  }

  void create_scratch(size_t bytes) override { context_.scratch = memory_.new_private(bytes, "scratch"); }

  size_t work_bytes(int64_t rows, int64_t cols) const override {
    return static_cast<size_t>(std::min(rows, kPlannedDecodeRows) * cols * kPlannedSplits) * sizeof(float) +
           gemm_.work_bytes(rows, cols);
  }

  void create_kv_cache(const KvLayout& layout) override {
    cache_ = std::make_unique<KvCache>(layout, memory_);
    create_attention();
  }

  size_t sampler_bytes(const SamplerLayout& layout) const override { return Sampler::bytes(layout); }

  void create_sampler(const SamplerLayout& layout) override {
    sampler_ = std::make_unique<Sampler>(layout, memory_);
    max_length_ = layout.max_tokens;
    if (output_layout_.max_rows > 0) sampler_->create_rows(output_layout_, memory_);
    create_attention();
  }

  void create_io(size_t stage_bytes, const OutputLayout& output) override {
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    output_layout_ = output;
    stage_bytes_ = std::max<size_t>(stage_bytes, 64);
    input_ = memory_.new_private(stage_bytes_, "input");
    output_ = memory_.new_private(output.bytes, "output");
    memory_.fill_zero({output_.get(), 0, output_->length()});
    for (Ring& ring : rings_) {
      ring.stage = memory_.new_shared(stage_bytes_, "stage");
      ring.output = memory_.new_shared(output.bytes, "results");
      ring.stage_host = {static_cast<std::byte*>(ring.stage->contents()), stage_bytes_};
    }
    if (sampler_) sampler_->create_rows(output, memory_);
    memory_.commit_residency();
    packers_.reset();  // nothing is loaded from here on
  }

  void rehearse(const StagedStep& step, const std::function<void()>& encode) override {
    idle("rehearse");
    drop_encoding();
    step_ = StepView(step, input_.get());
    times_ = {};
    encoder_.begin_rehearsal();
    rehearsing_ = true;
    try {
      prepare_step();
      encode();
    } catch (...) {
      encoder_.end_rehearsal();
      rehearsing_ = false;
      throw;
    }
    encoder_.end_rehearsal();
    rehearsing_ = false;
  }

  // -- outside a step --

  void write_scratch(Region region, std::span<const std::byte> bytes) override {
    idle("write_scratch");
    memory_.write(context_.region(region, bytes.size()), bytes);
  }
  void read_scratch(Region region, std::span<std::byte> bytes) override {
    idle("read_scratch");
    ++counters_.readbacks;
    memory_.read(context_.region(region, bytes.size()), bytes);
  }
  void write_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override {
    idle("write_cache");
    memory_.write(cache().part(layer, value), bytes);
  }
  void read_cache(int64_t layer, bool value, std::span<std::byte> bytes) override {
    idle("read_cache");
    ++counters_.readbacks;
    memory_.read(cache().part(layer, value), bytes);
  }

  // -- a step --

  std::span<std::byte> stage(int ring) override { return rings_[ring & 1].stage_host; }

  void begin(const StagedStep& step) override {
    drop_encoding();  // a step whose encoding threw is dropped
    Ring& ring = rings_[step.ring & 1];
    if (ring.commands)
      throw_error(ErrorKind::internal, "gpu: ring {} is still in flight; wait for it first", step.ring);
    if (step.zeros + step.copies > 0 && !cache_)
      throw_error(ErrorKind::internal, "gpu: block copies without a KV cache");
    step_ = StepView(step, input_.get());
    if (sampler_) sampler_->prepare(step, ring.stage_host.data());
    times_ = {};
    ring.fail = std::exchange(fail_next_, false);

    close_step();
    if (std::exchange(capture_next_step_, false)) {
      start_capture(device_.queue.get());
      capturing_ = true;
    }
    if (!profiling_) {
      softmetal::begin_step();
      step_open_ = true;
      softmetal::begin_encode();
    }
    pool_ = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    encoding_ = &ring;
    commands_ = NS::RetainPtr(device_.queue->commandBufferWithUnretainedReferences());
    MTL::BlitCommandEncoder* blit = commands_->blitCommandEncoder();
    if (fence_used_) blit->waitForFence(fence_.get());
    if (step.bytes > 0) blit->copyFromBuffer(ring.stage.get(), 0, input_.get(), 0, step.bytes);
    blit->updateFence(fence_.get());
    blit->endEncoding();
    fence_used_ = true;
    if (profiling_) {
      commands_->commit();
      commands_ = NS::RetainPtr(device_.queue->commandBuffer());
    }
    encoder_.begin(commands_.get(), fence_.get());
    prepare_step();
  }

  void embed(const EmbedOp& op) override {
    const Matrix& table = matrix(op.table);
    const int64_t tokens = step().tokens;
    if (skips() || tokens == 0) return;
    EmbedArgs args;
    args.table = &table;
    args.positions_table = op.position_table ? &matrix(op.position_table) : nullptr;
    args.rows = tokens;
    args.scale = op.scale;
    args.token_ids = step_.token_ids();
    args.positions = step_.positions();
    args.previous = sampler_ && output_layout_.max_rows > 0 ? sampler_->previous_tokens(number_) : step_.token_ids();
    args.out = context_.region(op.out, static_cast<size_t>(tokens * table.cols) * 4);
    times_.weight_bytes += table.bytes / static_cast<size_t>(table.rows) * static_cast<size_t>(tokens);
    metal::embed(context_, args);
  }

  void rope_table(const RopeTableOp& op) override {
    const Weight& freqs = weight(op.inv_freq);
    if (skips() || step().tokens == 0) return;
    const size_t bytes = static_cast<size_t>(step().tokens * freqs.size) * 8;
    metal::rope_table(context_, step_, vector(op.inv_freq, freqs.size), op.factor, context_.region(op.out, bytes));
  }

  void norm(const NormOp& op) override {
    if (skips() || op.rows == 0) return;
    metal::norm(context_, op, vector(op.weight, op.dim), vector(op.bias, op.dim));
  }

  void linear(const LinearOp& op) override {
    if (skips() || op.rows == 0) return;
    const Matrix& w = matrix(op.weight);
    const size_t out_element = op.accumulate || op.f32_out ? 4 : 2;
    LinearArgs args;
    args.weight = &w;
    args.rows = op.rows;
    args.in = context_.region(op.in, static_cast<size_t>(op.rows * w.cols) * 2);
    args.bias = vector(op.bias, w.rows);
    args.out = context_.region(op.out, static_cast<size_t>(op.rows * w.rows) * out_element);
    args.accumulate = op.accumulate;
    args.f32_out = op.f32_out;
    args.activation = op.activation;
    args.decode_rows = op.decode_rows;
    times_.weight_bytes += w.bytes;
    metal::linear(context_, args);
  }

  void gated_linear(const GatedLinearOp& op) override {
    if (skips() || op.rows == 0) return;
    GatedLinearArgs args;
    args.gate = &matrix(op.gate);
    args.up = &matrix(op.up);
    args.rows = op.rows;
    args.activation = op.activation;
    args.decode_rows = op.decode_rows;
    args.in = context_.region(op.in, static_cast<size_t>(op.rows * args.gate->cols) * 2);
    args.gate_bias = vector(op.gate_bias, args.gate->rows);
    args.up_bias = vector(op.up_bias, args.up->rows);
    args.out = context_.region(op.out, static_cast<size_t>(op.rows * args.gate->rows) * 2);
    times_.weight_bytes += args.gate->bytes + args.up->bytes;
    metal::gated_linear(context_, args);
  }

  void route(const RouteOp& op) override {
    if (skips() || op.route.rows == 0) return;
    metal::route(context_, op);
  }

  void expert_gated_linear(const ExpertGatedLinearOp& op) override {
    if (skips() || op.route.rows == 0) return;
    ExpertLinearArgs args;
    args.weight = &matrix(op.gate);
    args.up = &matrix(op.up);
    args.activation = op.activation;
    args.look_up = true;
    args.in = context_.region(op.in, static_cast<size_t>(op.route.rows * args.weight->cols) * 2);
    expert_linear(args, op.route, op.out, 2);
  }

  void expert_linear(const ExpertLinearOp& op) override {
    if (skips() || op.route.rows == 0) return;
    ExpertLinearArgs args;
    args.weight = &matrix(op.weight);
    args.in = context_.region(op.in, static_cast<size_t>(op.route.pairs() * args.weight->cols) * 2);
    expert_linear(args, op.route, op.out, 4);
  }

  void expert_sum(const ExpertSumOp& op) override {
    if (skips() || op.route.rows == 0) return;
    metal::expert_sum(context_, op);
  }

  void decode_attention(const DecodeAttentionOp& op) override {
    if (skips() || step().decode_rows == 0) return;
    AttentionArgs args = attention_args(op.layer, op.shape, op.qkv);
    set_rotation(args, op.rope, op.q_norm, op.k_norm, op.norm_eps);
    args.out = context_.region(op.out, static_cast<size_t>(step().tokens * op.shape.heads * op.shape.head_size) * 2);
    count_kv_bytes(op.shape, 0, step().decode_rows);
    attention_->decode(context_, step_, args);
  }

  void prefill_write(const PrefillWriteOp& op) override {
    if (skips() || step().tokens == step().decode_rows) return;
    AttentionArgs args = attention_args(op.layer, op.shape, op.qkv);
    set_rotation(args, op.rope, op.q_norm, op.k_norm, op.norm_eps);
    attention_->prefill_write(context_, step_, args);
  }

  void prefill_attention(const PrefillAttentionOp& op) override {
    if (skips() || step().tokens == step().decode_rows) return;
    AttentionArgs args = attention_args(op.layer, op.shape, op.qkv);
    args.out = context_.region(op.out, static_cast<size_t>(step().tokens * op.shape.heads * op.shape.head_size) * 2);
    count_kv_bytes(op.shape, step().decode_rows, step().seqs);
    attention_->prefill(context_, step_, args);
  }

  void gather_rows(const GatherRowsOp& op) override {
    if (skips() || step().samples == 0) return;
    metal::gather_rows(context_, step_, op);
  }

  void sample(const SampleOp& op) override {
    if (skips() || step().samples == 0) return;
    if (!sampler_) throw_error(ErrorKind::internal, "gpu: sample() without create_sampler()");
    if (step().samples > output_layout_.max_rows)
      throw_error(ErrorKind::internal, "gpu: {} sampled rows, room for {}", step().samples, output_layout_.max_rows);
    sampler_->sample(context_, step_, context_.region(op.logits, static_cast<size_t>(step().samples * op.vocab) * 4),
                     {output_.get(), 0, output_layout_.bytes}, number_);
    samples_ = true;
  }

  void submit() override {
    Ring* ring = encoding_;
    if (ring == nullptr) throw_error(ErrorKind::internal, "gpu: submit() without begin()");
    encoder_.end();
    if (samples_) copy_outputs(*ring);
    softmetal::end_encode();
    encoding_ = nullptr;
    samples_ = false;
    ++number_;
    ++counters_.submissions;
    ring->times = times_;
    ring->timed = encoder_.take_timed();
    ring->commands = std::move(commands_);
    commands_ = {};
    ring->commands->commit();
    pool_.reset();
    last_submitted_ = ring;
  }

  StepTimes wait(int index) override {
    Ring& ring = rings_[index & 1];
    if (!ring.commands) throw_error(ErrorKind::internal, "gpu: ring {} has no step to wait for", index);
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    ++counters_.waits;
    // The audit knows one step at a time: with a second one submitted, this wait belongs to no step of its.
    if (last_submitted_ != &ring) close_step();
    ring.commands->waitUntilCompleted();
    const auto commands = std::move(ring.commands);
    ring.commands = {};
    if (profiling_) profile_.add(std::exchange(ring.timed, {}));
    if (std::exchange(capturing_, false)) MTL::CaptureManager::sharedCaptureManager()->stopCapture();
    if (encoding_ == nullptr) close_step();
    if (NS::Error* error = commands->error())
      throw_error(ErrorKind::device, "gpu: the step failed on the GPU: {}; its outputs are lost",
                  error->localizedDescription()->utf8String());
    if (ring.fail)
      throw_error(ErrorKind::device, "gpu: the step failed on the device; its outputs are lost, submit it again");
    StepTimes times = ring.times;
    times.run_us = (commands->GPUEndTime() - commands->GPUStartTime()) * 1e6;
    if (last_end_ > 0) times.gap_us = std::max(0.0, (commands->GPUStartTime() - last_end_) * 1e6);
    last_end_ = commands->GPUEndTime();
    return times;
  }

  std::span<const std::byte> output(int ring) override {
    ++counters_.readbacks;
    return {static_cast<const std::byte*>(rings_[ring & 1].output->contents()), output_layout_.bytes};
  }

  void inject_failure() override { fail_next_ = true; }

 private:
  struct Weight {
    Matrix matrix;
    BufferPtr vector;
    int64_t size = 0;  // of the vector; 0: it is a matrix
  };
  struct Ring {
    BufferPtr stage, output;
    std::span<std::byte> stage_host;
    NS::SharedPtr<MTL::CommandBuffer> commands;  // in flight
    StepTimes times;
    std::vector<Profile::Timed> timed;
    bool fail = false;
  };

  void create_attention() {
    if (!cache_) return;
    const KvLayout& kv = cache_->layout();
    const int64_t positions = kv.num_blocks * kv.block_size;
    attention_ = std::make_unique<Attention>(*cache_, context_.activation,
                                             max_length_ > 0 ? std::min(max_length_, positions) : positions);
  }

  // -- encoding --

  const StagedStep& step() const {
    if (encoding_ == nullptr && !rehearsing_)
      throw_error(ErrorKind::internal, "gpu: an operation outside begin() and submit()");
    return step_.step();
  }
  // A step that is to fail does nothing.
  bool skips() const {
    step();
    return !rehearsing_ && encoding_->fail;
  }

  void close_step() {
    if (std::exchange(step_open_, false)) softmetal::end_step();
  }

  void drop_encoding() {
    if (encoding_ == nullptr) return;
    encoder_.end();
    encoder_.take_timed();
    softmetal::end_encode();
    commands_.reset();
    pool_.reset();
    encoding_ = nullptr;
    samples_ = false;
  }

  void prepare_step() {
    if (skips()) return;
    const StagedStep& s = step_.step();
    if (cache_ && (s.zeros > 0 || s.copies > 0)) prepare_blocks(context_, step_, *cache_);
    if (sampler_ && s.resets > 0) sampler_->reset_slots(context_, step_);
  }

  // The outputs of the step's rows, from the GPU's memory to the shared buffer.
  void copy_outputs(const Ring& ring) {
    const size_t rows = static_cast<size_t>(step_.step().samples);
    const auto* params = reinterpret_cast<const StagedSampling*>(ring.stage_host.data() + step_.step().sampling);
    size_t logits_rows = 0;
    for (size_t r = 0; r < rows; ++r) logits_rows += params[r].logits_row >= 0 ? 1 : 0;
    MTL::BlitCommandEncoder* blit = commands_->blitCommandEncoder();
    blit->waitForFence(fence_.get());
    metal::copy_outputs(blit, output_layout_, output_.get(), ring.output.get(), rows, logits_rows);
    blit->updateFence(fence_.get());
    blit->endEncoding();
  }

  const Weight& weight(WeightId id) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= weights_.size())
      throw_error(ErrorKind::internal, "gpu: no weight {}", id.index);
    return weights_[static_cast<size_t>(id.index)];
  }
  const Matrix& matrix(WeightId id) const {
    const Weight& w = weight(id);
    if (w.size > 0) throw_error(ErrorKind::internal, "gpu: weight {} is a vector, not a matrix", id.index);
    return w.matrix;
  }
  // Nothing when the weight is absent.
  BufferView vector(WeightId id, int64_t size) const {
    if (!id) return {};
    const Weight& w = weight(id);
    if (w.size != size)
      throw_error(ErrorKind::internal, "gpu: weight {} has {} values, not {}", id.index, w.size, size);
    return {w.vector.get(), 0, static_cast<size_t>(size) * 4};
  }

  void expert_linear(ExpertLinearArgs& args, const ExpertRoute& route, Region out, size_t element) {
    const int64_t outputs = args.weight->rows / route.experts;
    args.route = route;
    args.out = context_.region(out, static_cast<size_t>(route.pairs() * outputs) * element);
    // Which experts have rows is known on the GPU alone: at most as many as there are pairs.
    const size_t bytes = args.weight->bytes + (args.up != nullptr ? args.up->bytes : 0);
    times_.weight_bytes +=
        bytes / static_cast<size_t>(route.experts) * static_cast<size_t>(std::min(route.experts, route.pairs()));
    metal::expert_linear(context_, args);
  }

  const KvCache& cache() const {
    if (!cache_) throw_error(ErrorKind::internal, "gpu: there is no KV cache");
    return *cache_;
  }

  AttentionArgs attention_args(int64_t layer, const AttentionShape& shape, Region qkv) const {
    const KvLayout& layout = cache().layout();
    if (shape.kv_heads != layout.kv_heads || shape.head_size != layout.head_size)
      throw_error(ErrorKind::internal, "gpu: attention of {} KV heads of {} on a cache of {} of {}", shape.kv_heads,
                  shape.head_size, layout.kv_heads, layout.head_size);
    AttentionArgs args;
    args.layer = layer;
    args.shape = shape;
    const int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    args.qkv = context_.region(qkv, static_cast<size_t>(step().tokens * width) * 2);
    return args;
  }
  void set_rotation(AttentionArgs& args, Region rope, WeightId q_norm, WeightId k_norm, float eps) const {
    if (args.shape.rope_dims > 0)
      args.rope = context_.region(rope, static_cast<size_t>(step().tokens * args.shape.rope_dims) * 4);
    args.q_norm = vector(q_norm, args.shape.head_size);
    args.k_norm = vector(k_norm, args.shape.head_size);
    args.norm_eps = eps;
  }

  // K and V that sequences [begin, end) look at, once each. The step's arrays are read where the host wrote them.
  void count_kv_bytes(const AttentionShape& shape, int32_t begin, int32_t end) {
    if (rehearsing_) return;
    const std::byte* stage = encoding_->stage_host.data();
    const auto* start = reinterpret_cast<const int32_t*>(stage + step().query_start);
    const auto* lengths = reinterpret_cast<const int32_t*>(stage + step().seq_lens);
    uint64_t tokens = 0;
    for (int32_t s = begin; s < end; ++s) {
      const int64_t rows = start[s + 1] - start[s];
      tokens += static_cast<uint64_t>(shape.window > 0 ? std::min<int64_t>(lengths[s], shape.window + rows - 1)
                                                       : int64_t{lengths[s]});
    }
    times_.kv_bytes += 2 * tokens * static_cast<uint64_t>(shape.kv_heads) * cache().layout().row_bytes();
  }

  void idle(const char* call) const {
    for (const Ring& ring : rings_)
      if (ring.commands)
        throw_error(ErrorKind::internal, "gpu: {}() while a step is in flight; wait for it first", call);
  }

  Device device_;
  std::unique_ptr<ThreadPool> packers_;  // while weights are loaded
  DeviceInfo info_;
  DeviceCounters counters_;
  std::function<void(std::span<const std::byte>)> drop_pages_;
  PipelineCache pipelines_;
  Memory memory_;
  Encoder encoder_;
  Gemm gemm_;
  Context context_;
  NS::SharedPtr<MTL::Fence> fence_;  // orders the encoders of all steps: nothing else does, buffers are untracked
  bool fence_used_ = false;

  std::vector<Weight> weights_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<Sampler> sampler_;
  int64_t max_length_ = 0;
  BufferPtr input_, output_;
  OutputLayout output_layout_;
  size_t stage_bytes_ = 0;

  Ring rings_[2];
  Ring* encoding_ = nullptr;
  Ring* last_submitted_ = nullptr;
  NS::SharedPtr<NS::AutoreleasePool> pool_;     // of the step being encoded
  NS::SharedPtr<MTL::CommandBuffer> commands_;  // being encoded
  StepView step_;
  StepTimes times_;
  bool rehearsing_ = false;
  bool samples_ = false;    // the step being encoded has outputs
  bool step_open_ = false;  // for the audit of the software device
  bool fail_next_ = false;
  bool profiling_ = false;
  Profile profile_;
  bool capture_next_step_ = false, capturing_ = false;
  uint64_t number_ = 1;  // of the step being encoded
  double last_end_ = 0;
};

}  // namespace

std::unique_ptr<MetalBackend> make_metal_backend(const MetalOptions& options) {
  return std::make_unique<Metal>(options);
}

}  // namespace ingot
