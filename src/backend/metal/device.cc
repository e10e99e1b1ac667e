#include "backend/metal/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "backend/metal/commands.h"
#include "backend/metal/context.h"
#include "backend/metal/gpu.h"
#include "backend/metal/host_hooks.h"
#include "backend/metal/library.h"
#include "backend/metal/linear/timer.h"
#include "backend/metal/ops.h"
#include "backend/metal/pipelines.h"
#include "backend/metal/profile.h"
#include "core/error.h"
#include "core/threads.h"
#include "step/view.h"

namespace ingot {
namespace {

using namespace metal;

constexpr int32_t kStepTokens = 256;       // in one step: keeps the longest one well under the GPU's watchdog
constexpr int32_t kCudaStepTokens = 2048;  // no watchdog there
// One that is alone does not sum cuts there: its kernels were timed without.
constexpr const char* kNoCudaGroups = "an NVIDIA GPU shares no model with other ranks; use --device cpu";
constexpr int kPackers = 16;                                    // threads that pack weights, at most
constexpr int64_t kPlannedDecodeRows = 64, kPlannedSplits = 8;  // of the partial results of attention

// What was chosen by timing on this device, with these kernels. None for those of VLLM_METAL_PATH_RESOURCES, which may
// change under the same name.
ChoiceFile kept_choices(const MetalOptions& options, const Gpu& gpu, const std::string& library) {
  if (options.tuning_folder.empty() || !options.resources.empty() || (gpu.software && !options.tunes_software))
    return {};
  ChoiceFile file(std::filesystem::path(options.tuning_folder) / choice_file_name(gpu.name, library),
                  {.device = gpu.name, .driver = host::driver_version(options.cuda), .kernels = kKernelStamp});
  if (!file.complaint().empty()) fmt::print(stderr, "ingot: {}\n", file.complaint());
  return file;
}

class Metal final : public Backend {
 public:
  explicit Metal(const MetalOptions& options)
      : Backend("gpu"),
        gpu_(open_gpu(options.cuda)),
        drop_pages_(options.drop_pages),
        // Nothing is compiled ahead for NVIDIA's.
        kernels_(load_library(
            gpu_.device.get(),
            {.resources = options.resources, .folder = options.cuda ? "" : host::own_folder(), .bfloat = gpu_.bfloat})),
        pipelines_(gpu_.device, kernels_.library, counters_),
        memory_(gpu_.device, gpu_.queue, counters_),
        encoder_(pipelines_, counters_),
        gemm_(gpu_.device),
        wide_(host::warpgroups(gpu_.device.get())),
        choices_(gpu_.family, kept_choices(options, gpu_, gemm_.name())),
        context_{.encoder = encoder_,
                 .memory = memory_,
                 .gemm = gemm_,
                 .wide = wide_,
                 .choices = choices_,
                 .activation = options.activation,
                 .family = gpu_.family,
                 .threadgroup_bytes = gpu_.device->maxThreadgroupMemoryLength(),
                 .times = &has_.times},
        tunes_((!gpu_.software || options.tunes_software) && options.resources.empty() && !options.profile),
        profiling_(options.profile),
        capture_next_step_(options.capture_next_step),
        slices_(!options.cuda) {
    if (options.activation != DType::f16 && options.activation != DType::bf16)
      throw_error(ErrorKind::bad_call, "gpu: activations of {}: must be f16 or bf16", dtype_name(options.activation));
    if (options.activation == DType::bf16 && !gpu_.bfloat)
      throw_error(ErrorKind::declined, "gpu: bf16 needs macOS 14 or newer; use an f16 or quantized model");
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    fence_ = NS::TransferPtr(gpu_.device->newFence());
    beside_ = NS::TransferPtr(gpu_.device->newFence());
    if (profiling_) encoder_.profile(gpu_.queue.get());
    const std::string description = fmt::format("{}, {} activations{}", gpu_.name, dtype_name(options.activation),
                                                wide_.cores() > 0      ? ", prefill by warpgroups"
                                                : gemm_.name().empty() ? ""
                                                                       : ", prefill by " + gemm_.name());
    describe(
        {.name = options.cuda ? "cuda" : "metal",
         .description = description,
         .numerics = fmt::format("{}, family {}", description, gpu_.family),
         .activation = options.activation,
         .memory_bytes = gpu_.memory_bytes,
         .own_memory = options.cuda,
         .moves_beside = true,
         .step_tokens = options.cuda ? kCudaStepTokens : kStepTokens,
         .kernels = kernels_.from,
         .tuning = choices_.file().path().empty() ? ""
                                                  : fmt::format("{} products by rows, in {}", choices_.file().size(),
                                                                choices_.file().path().string())},
        {.runs = "the Metal kernels run",
         .head_size = kMaxHeadSize,
         .experts = kMaxExperts,
         .experts_per_token = kMaxExpertsPerToken,
         .no_bf16_cache = gpu_.bfloat ? "" : "a KV cache of bf16 needs macOS 14 or newer",
         .no_groups = options.cuda ? kNoCudaGroups : ""});
    if (options.group != nullptr && !options.cuda)
      context_.mailboxes = std::make_unique<Mailboxes>(gpu_.device.get(), *options.group, options.tp, memory_);
  }

  ~Metal() override {
    drop_encoding();
    close_step();
    for (Ring& ring : rings_)
      if (ring.commands) wait_for(ring.commands.get(), counters_);
    if (profiling_) fmt::print(stderr, "{}", profile_.table());
  }

  Tuner* tuner() override {
    if (!tunes_) return nullptr;
    if (!tuner_) {
      // The software device shows that it works; its times mean nothing.
      const TimerOptions times =
          gpu_.software ? TimerOptions{.rotated_bytes = 1 << 16, .least_us = 0, .least_count = 2} : TimerOptions{};
      timer_ = std::make_unique<ProductTimer>(context_, choices_, gpu_.queue.get(), fence_.get(), counters_, times);
      tuner_ = std::make_unique<LinearTuner>(choices_, *timer_);
    }
    close_step();
    return tuner_.get();
  }

  Profile take_profile() override { return std::exchange(profile_, {}); }

  size_t matrix_bytes(const MatrixSpec& spec) const override { return packed_bytes(sliced(spec)); }
  size_t sampler_bytes(const SamplerLayout& layout) const override { return Sampler::bytes(layout); }
  size_t work_bytes(int64_t rows, int64_t cols) const override {
    return static_cast<size_t>(std::min(rows, kPlannedDecodeRows) * cols * kPlannedSplits) * sizeof(float) +
           std::max(gemm_.work_bytes(rows, cols), wide_.work_bytes(rows, cols));
  }
  size_t slice_bytes(int64_t rows, int64_t dim) const override {
    return slices_ ? static_cast<size_t>(2 * rows * dim) * sizeof(float) : 0;
  }
  size_t mailbox_bytes(size_t sent, size_t received) const override { return sent + received; }

 private:
  struct Ring {
    BufferPtr stage, output;
    NS::SharedPtr<MTL::CommandBuffer> commands;  // in flight
    uint64_t mail = 0;                           // Mailboxes::submit()
    std::vector<TimedDispatch> timed;
  };

  // -- load --

  // What ranks could cut is summed in slices, so that all numbers of ranks give the same bits.
  MatrixSpec sliced(const MatrixSpec& spec) const {
    MatrixSpec own = spec;
    if (!slices_) own.slices.clear();
    return own;
  }

  size_t add_matrix(const MatrixSpec& spec) override {
    if (!packers_) packers_ = std::make_unique<ThreadPool>(std::min(ThreadPool::available_cpus(), kPackers));
    context_.weights.push_back({pack_matrix(sliced(spec), memory_, drop_pages_, *packers_), {}, 0});
    return context_.weights.back().matrix.bytes;
  }

  size_t add_vector(const std::string& name, std::span<const float> values) override {
    const auto bytes = std::as_bytes(values);
    const auto fill = [&](size_t offset, std::span<std::byte> chunk) {
      std::copy_n(bytes.begin() + static_cast<int64_t>(offset), chunk.size(), chunk.begin());
    };
    Weight weight;
    weight.vector = memory_.upload(bytes.size(), "weight " + name, 4, fill);
    weight.vector_bytes = bytes.size();
    context_.weights.push_back(std::move(weight));
    return bytes.size();
  }

  void make_scratch(size_t bytes) override { context_.scratch = memory_.new_private(bytes, "scratch"); }

  void make_kv_cache(const KvLayout& layout) override {
    context_.cache = std::make_unique<KvCache>(layout, memory_);
    create_attention(has_.sampler ? has_.sampler->max_tokens : 0);
  }

  std::vector<std::span<std::byte>> make_host_blocks(int64_t count, size_t bytes) override {
    context_.host_blocks = std::make_unique<HostBlocks>(count, bytes, memory_);
    return context_.host_blocks->spans();
  }

  void make_sampler(const SamplerLayout& layout) override {
    context_.sampler = std::make_unique<Sampler>(layout, memory_);
    if (context_.output) context_.sampler->create_rows(has_.output, memory_);
    if (context_.cache) create_attention(layout.max_tokens);
  }

  // `longest`: the most tokens of a sequence; 0: not known.
  void create_attention(int64_t longest) {
    const KvLayout& kv = context_.cache->layout();
    const int64_t positions = kv.num_blocks * kv.block_size;
    context_.attention = std::make_unique<Attention>(*context_.cache, context_.activation,
                                                     longest > 0 ? std::min(longest, positions) : positions);
  }

  std::vector<std::span<std::byte>> make_io(size_t stage_bytes, const OutputLayout& output, int rings) override {
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    stage_bytes = std::max<size_t>(stage_bytes, 64);
    context_.input = memory_.new_private(stage_bytes, "input");
    context_.output = memory_.new_zeros(output.bytes, "output");
    context_.pooled = output.pooled;
    context_.states = output.states;
    context_.state_width = output.state_width;
    std::vector<std::span<std::byte>> stages;
    rings_.resize(static_cast<size_t>(rings));
    for (Ring& ring : rings_) {
      ring.stage = memory_.new_shared(stage_bytes, "stage");
      ring.output = memory_.new_shared(output.bytes, "results");
      stages.emplace_back(static_cast<std::byte*>(ring.stage->contents()), stage_bytes);
    }
    if (context_.sampler) context_.sampler->create_rows(output, memory_);
    memory_.commit_residency();
    packers_.reset();  // nothing is loaded from here on
    return stages;
  }

  // -- outside a step --

  void copy_to(Region region, std::span<const std::byte> bytes) override {
    memory_.write({context_.scratch.get(), region.offset, bytes.size()}, bytes);
  }
  void copy_from(Region region, std::span<std::byte> bytes) override {
    memory_.read({context_.scratch.get(), region.offset, bytes.size()}, bytes);
  }
  void copy_to_cache(int64_t layer, bool value, std::span<const std::byte> bytes) override {
    memory_.write(context_.cache->part(layer, value), bytes);
  }
  void copy_from_cache(int64_t layer, bool value, std::span<std::byte> bytes) override {
    memory_.read(context_.cache->part(layer, value), bytes);
  }

  // -- a step --

  bool begin_rehearsal() override {
    drop_encoding();
    context_.step = has_.step;
    encoder_.begin_rehearsal();
    return true;
  }
  void end_rehearsal() override {
    add_slices(context_);
    encoder_.end_rehearsal();
  }

  void begin_step(int index) override {
    drop_encoding();
    const StagedStep& step = has_.step;
    context_.step = step;
    context_.staged_at = has_.stage;
    if (context_.sampler) context_.sampler->prepare(StepView(step, has_.stage));

    close_step();
    if (std::exchange(capture_next_step_, false)) {
      start_capture(gpu_.queue.get());
      capturing_ = true;
    }
    if (!profiling_) {
      host::begin_step();
      step_open_ = true;
      host::begin_encode();
    }
    pool_ = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    commands_ = NS::RetainPtr(gpu_.queue->commandBufferWithUnretainedReferences());
    MTL::BlitCommandEncoder* blit = commands_->blitCommandEncoder();
    if (fence_used_) blit->waitForFence(fence_.get());
    if (std::exchange(moved_beside_, false)) blit->waitForFence(beside_.get());
    if (step.bytes > 0) blit->copyFromBuffer(rings_[index].stage.get(), 0, context_.input.get(), 0, step.bytes);
    const StepView view(step, has_.stage);
    if (step.saves_first > 0) context_.host_blocks->save(blit, *context_.cache, view, 0, step.saves_first);
    blit->updateFence(fence_.get());
    blit->endEncoding();
    if (step.loads_first > 0) {
      blit = commands_->blitCommandEncoder();
      blit->waitForFence(fence_.get());
      context_.host_blocks->load(blit, *context_.cache, view, 0, step.loads_first);
      blit->updateFence(fence_.get());
      blit->endEncoding();
    }
    fence_used_ = true;
    move_beside(view);
    if (profiling_) {
      commit(commands_.get(), counters_);
      commands_ = NS::RetainPtr(gpu_.queue->commandBuffer());
    }
    encoder_.begin(commands_.get(), fence_.get());
  }

  // Saves and loads that no row of the step touches run beside its rows: the next step waits for them, and the end of
  // this one.
  void move_beside(const StepView& view) {
    const StagedStep& step = view.step();
    const auto encode = [&](auto&& copies) {
      MTL::BlitCommandEncoder* blit = commands_->blitCommandEncoder();
      host::run_beside(blit);
      blit->waitForFence(fence_.get());
      if (std::exchange(moved_beside_, true)) blit->waitForFence(beside_.get());
      copies(blit);
      blit->updateFence(beside_.get());
      blit->endEncoding();
    };
    if (step.saves > step.saves_first)
      encode([&](MTL::BlitCommandEncoder* blit) {
        context_.host_blocks->save(blit, *context_.cache, view, step.saves_first, step.saves);
      });
    if (step.loads > step.loads_first)
      encode([&](MTL::BlitCommandEncoder* blit) {
        context_.host_blocks->load(blit, *context_.cache, view, step.loads_first, step.loads);
      });
  }

  void take(const Op& op) override {
    std::visit(
        [this](const auto& one) {
          if (!adds_slices(one, context_)) add_slices(context_);
          encoder_.role("");
          if constexpr (requires { one.role; }) encoder_.role(one.role);
          metal::encode(one, context_);
        },
        op);
    if (std::holds_alternative<SampleOp>(op) || std::holds_alternative<PoolOp>(op) ||
        std::holds_alternative<GiveStatesOp>(op))
      samples_ = true;
  }

  void submit_step(int index) override {
    Ring& ring = rings_[index];
    add_slices(context_);
    encoder_.end();
    if (std::exchange(samples_, false)) copy_outputs(ring);
    if (std::exchange(context_.answers, false)) send_outputs(ring);
    host::end_encode();
    ++context_.number;
    ring.timed = encoder_.take_timed();
    ring.commands = std::exchange(commands_, {});
    if (context_.mailboxes)
      ring.commands->addCompletedHandler([this](MTL::CommandBuffer* done) {
        if (done->error() != nullptr) tell_failure(failure_of(done));
      });
    commit(ring.commands.get(), counters_);
    if (context_.mailboxes) ring.mail = context_.mailboxes->submit();
    pool_.reset();
    last_submitted_ = &ring;
  }

  void finish_step(int index, StepTimes& times) override {
    Ring& ring = rings_[index];
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    // The audit knows one step at a time: with a second one submitted, this wait belongs to no step of its.
    if (last_submitted_ != &ring) close_step();
    wait_for(ring.commands.get(), counters_);
    const auto commands = std::exchange(ring.commands, {});
    if (profiling_) add_step(profile_, std::exchange(ring.timed, {}));
    if (std::exchange(capturing_, false)) MTL::CaptureManager::sharedCaptureManager()->stopCapture();
    if (!commands_) close_step();
    if (context_.mailboxes) context_.mailboxes->finish(ring.mail, commands->error() != nullptr);
    if (commands->error() != nullptr) throw Error(ErrorKind::device, failure_of(commands.get()));
    times.run_us = (commands->GPUEndTime() - commands->GPUStartTime()) * 1e6;
    if (last_end_ > 0) times.gap_us = std::max(0.0, (commands->GPUStartTime() - last_end_) * 1e6);
    last_end_ = commands->GPUEndTime();
  }

  std::span<const std::byte> output_of(int index) override {
    return {static_cast<const std::byte*>(rings_[index].output->contents()), has_.output.bytes};
  }

  static std::string failure_of(MTL::CommandBuffer* failed) {
    return fmt::format("gpu: the step failed on the GPU: {}; its outputs are lost",
                       failed->error()->localizedDescription()->utf8String());
  }

  // Ends a step for the audit of the software device.
  void close_step() {
    if (std::exchange(step_open_, false)) host::end_step();
  }

  void drop_encoding() {
    if (!commands_) return;
    encoder_.end();
    encoder_.take_timed();
    host::end_encode();
    commands_.reset();
    if (context_.mailboxes) context_.mailboxes->drop();
    context_.answers = false;
    context_.slices_left.reset();
    pool_.reset();
    samples_ = false;
  }

  // The outputs of the step's rows, from the GPU's memory to the shared buffer.
  void copy_outputs(const Ring& ring) {
    const OutputLayout& out = has_.output;
    const auto rows = static_cast<size_t>(has_.step.samples), top = static_cast<size_t>(out.max_top);
    const StagedSampling* params = StepView(has_.step, has_.stage).sampling();
    size_t logits_rows = 0;
    for (size_t r = 0; r < rows; ++r) logits_rows += params[r].logits_row >= 0 ? 1 : 0;
    MTL::BlitCommandEncoder* blit = commands_->blitCommandEncoder();
    blit->waitForFence(fence_.get());
    const auto copy = [&](size_t offset, size_t words) {
      const size_t bytes = std::min(words * 4, out.bytes - offset);
      if (bytes > 0) blit->copyFromBuffer(context_.output.get(), offset, ring.output.get(), offset, bytes);
    };
    for (const size_t offset : {out.tokens, out.logprobs, out.ranks}) copy(offset, rows);
    for (const size_t offset : {out.top_ids, out.top_values}) copy(offset, rows * top);
    copy(out.logits, logits_rows * static_cast<size_t>(out.vocab));
    copy(out.pooled, static_cast<size_t>(has_.step.pooled * out.pooled_dim));
    copy(out.states, static_cast<size_t>(has_.step.states * out.state_width));
    blit->updateFence(fence_.get());
    blit->endEncoding();
  }

  // What lies in the shared buffer then, to rank 0.
  void send_outputs(const Ring& ring) {
    const StagedStep& step = has_.step;
    const OutputCounts counts = OutputCounts::of(
        {StepView(step, has_.stage).sampling(), static_cast<size_t>(step.samples)}, static_cast<size_t>(step.pooled));
    const size_t bytes = counts.packed_bytes(has_.output);
    has_.times.wire_bytes += bytes;
    ++has_.times.wire_messages;
    context_.mailboxes->encode(commands_.get(), [this, counts, bytes, output = ring.output.get()] {
      host::host_access({output, 0, output->length()}, true);
      auto* const packed = static_cast<std::byte*>(output->contents());
      pack_output(has_.output, counts, packed);
      context_.mailboxes->all().answer({packed, bytes});
    });
  }

  Gpu gpu_;
  std::unique_ptr<ThreadPool> packers_;  // while weights are loaded
  DropPages drop_pages_;
  KernelLibrary kernels_;
  PipelineCache pipelines_;
  Memory memory_;
  Encoder encoder_;
  Gemm gemm_;
  Wide wide_;
  LinearChoices choices_;
  Context context_;
  std::unique_ptr<ProductTimer> timer_;
  std::unique_ptr<LinearTuner> tuner_;
  const bool tunes_;
  NS::SharedPtr<MTL::Fence> fence_;  // orders the encoders of all steps: nothing else does, buffers are untracked
  bool fence_used_ = false;
  NS::SharedPtr<MTL::Fence> beside_;  // updated by copies that run beside the rows of their step
  bool moved_beside_ = false;         // and to be waited for

  std::deque<Ring> rings_ = std::deque<Ring>(2);
  Ring* last_submitted_ = nullptr;
  NS::SharedPtr<NS::AutoreleasePool> pool_;     // of the step being encoded
  NS::SharedPtr<MTL::CommandBuffer> commands_;  // being encoded
  bool samples_ = false;                        // the step being encoded has outputs
  bool step_open_ = false;                      // for the audit
  bool profiling_ = false;
  Profile profile_;
  bool capture_next_step_ = false, capturing_ = false;
  const bool slices_;  // sums them
  double last_end_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_metal_backend(const MetalOptions& options) { return std::make_unique<Metal>(options); }

}  // namespace ingot
