#include "engine/loader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/bandwidth.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "core/settings.h"
#include "core/threads.h"
#include "engine/devices.h"
#include "engine/heads.h"
#include "engine/packed_cache.h"
#include "engine/ranks.h"
#include "model/config_read.h"
#include "model/decoder.h"
#include "model/file_table.h"
#include "model/quantized.h"
#include "model/weights.h"

namespace ingot {
namespace {

constexpr int64_t kLongSequence = 4096;        // tokens: every stage should have room for one
constexpr int64_t kProbe = int64_t{64} << 20;  // bytes that are read to see how fast a machine is

// Everything known about a model on a device before a byte of it is loaded.
struct Checked {
  std::string state;                  // files_state() of before they were opened, where weights are kept packed
  std::unique_ptr<ModelFiles> files;  // the others refer to them
  std::shared_ptr<const RowTable> embedded;
  std::unique_ptr<Backend> device;
  uint64_t memory = 0;  // bytes that a rank here may have; 0: unknown
  std::unique_ptr<CheckedWeights> weights;
  MemoryPlan plan;
};

void plan(Checked& checked, const EngineOptions& options) {
  checked.plan = plan_memory(checked.files->config, checked.weights->share(), options, Settings::from_environment(),
                             *checked.device, checked.weights->device_bytes(*checked.device), checked.memory);
}

Checked open_on_device(const EngineOptions& options) {
  Checked checked;
  checked.state = state_for_packed_cache(options);
  checked.files = std::make_unique<ModelFiles>(open_model(options));
  if (checked.files->config.head)
    checked.embedded = open_head_embedding(*checked.files, options);
  else if (!options.head_of.empty())
    throw_error(ErrorKind::bad_call, "{}: is no head that guesses tokens, but a model", options.model);
  if (options.gives_states) check_gives_states(checked.files->config, options);
  checked.device = make_device(options, checked.files->checkpoint.get());
  // Ranks of one machine share its memory.
  checked.memory =
      checked.device->info().memory_bytes / static_cast<uint64_t>(options.group ? options.group->neighbours() : 1);
  return checked;
}

// `stages`: the layers of each.
void check_share(Checked& checked, const EngineOptions& options, int rank, std::span<const Range> stages) {
  const ModelConfig& config = checked.files->config;
  const int stage = rank / options.tp;
  checked.weights = std::make_unique<CheckedWeights>(
      *checked.files->checkpoint, config, checked.files->style(), rank % options.tp, options.tp,
      Stage{.index = stage, .count = options.pp, .layers = stages[static_cast<size_t>(stage)]});
  plan(checked, options);
  if (const std::optional<std::string> reason =
          checked.device->decline(model_shape(config, options.ranks()), checked.plan.kv))
    throw_error(ErrorKind::declined, "{} cannot run this model: {}", checked.device->info().name, *reason);
}

// Which layers each stage has, by what they cost on its machine: weights, the cache of one long sequence or of as many
// blocks as were asked for, and what every stage needs beside them.
std::vector<Range> cut_model(const Checked& checked, const EngineOptions& options, std::span<const StageHost> hosts) {
  const ModelConfig& config = checked.files->config;
  if (options.pp == 1) return {{0, config.layers}};
  if (!options.pp_layers.empty()) return given_stages(options.pp_layers, options.pp, config.layers);
  const CheckedWeights weights(*checked.files->checkpoint, config, checked.files->style(), 0, options.tp,
                               whole_stage(config));
  StageCosts costs = weights.costs(*checked.device);
  EngineOptions one_sequence = options;
  one_sequence.group = nullptr;
  if (options.kv_blocks == 0)
    one_sequence.kv_blocks =
        ceil_div(options.max_model_len > 0 ? options.max_model_len : std::min(config.max_position, kLongSequence),
                 options.block_size);
  const MemoryPlan all =
      plan_memory(config, weights.share(), one_sequence, Settings::from_environment(), *checked.device, 0, 0);
  for (PartCost& layer : costs.layers) layer.bytes += all.kv_bytes / costs.layers.size();
  costs.every_stage = all.total_bytes() - all.kv_bytes + MemoryPlan::kReserve;
  return cut_stages(costs, hosts);
}

// `hosts`: of the stages; none: all are like this machine.
Checked check_model(const EngineOptions& options, int rank, std::span<const StageHost> hosts = {}) {
  Checked checked = open_on_device(options);
  const std::vector<StageHost> alike(static_cast<size_t>(options.pp), StageHost{.memory = checked.memory});
  const std::vector<Range> stages = cut_model(checked, options, hosts.empty() ? alike : hosts);
  if (!hosts.empty()) checked.memory = hosts[static_cast<size_t>(rank / options.tp)].memory;
  check_share(checked, options, rank, stages);
  return checked;
}

// What this machine is worth as a stage. Where there is but one, nobody compares speeds.
StageHost measure_host(const Checked& checked, const EngineOptions& options) {
  StageHost host{.memory = checked.memory};
  if (options.pp > 1 && options.pp_layers.empty() && options.group->neighbours() < options.group->size())
    host.speed = measure_read_bandwidth(options.threads > 0 ? options.threads : ThreadPool::available_cpus(), kProbe);
  return host;
}

// Rank 0 cuts the model for the machines of all ranks.
std::vector<Range> cut_together(const Checked& checked, const EngineOptions& options, RankNote& note) {
  Group& group = *options.group;
  const bool opened = checked.device != nullptr;
  const std::vector<StageHost> hosts =
      compare_hosts(group, options.tp, opened ? measure_host(checked, options) : StageHost());
  if (group.rank() != 0) return hear_stages(group);
  std::vector<Range> stages;
  try {
    if (opened) stages = cut_model(checked, options, hosts);
  } catch (const Error& error) {
    note.fail(error);
  }
  tell_stages(group, stages);
  return stages;
}

// Every rank checks its share; they go on when all can, within what the least of them can take.
Checked check_together(const EngineOptions& options) {
  Group& group = *options.group;
  const Settings settings = Settings::from_environment();
  RankNote note;
  note.machine = group.machine();
  note.version = INGOT_VERSION;
  note.settings = fmt::format("VLLM_METAL_SCRATCH_POOL_MB={} and VLLM_METAL_MAX_BATCH_SIZE={}",
                              settings.scratch_pool_mb, settings.max_batch_size);
  Checked checked;
  try {
    checked = open_on_device(options);
    note.path = checked.device->info().path;
    note.weights = weights_mark(*checked.files->checkpoint);
  } catch (const Error& error) {
    note.fail(error);
  }
  const std::vector<Range> stages = cut_together(checked, options, note);
  try {
    if (note.error.empty() && stages.size() == static_cast<size_t>(options.pp))
      check_share(checked, options, group.rank(), stages);
    const EngineLimits& limits = checked.plan.limits;
    note.kv_blocks = limits.num_blocks;
    note.step_tokens = limits.max_step_tokens;
    note.model_len = limits.max_model_len;
  } catch (const Error& error) {
    note.fail(error);
  }
  const RankNote least = agree(group, note);
  EngineOptions agreed = options;
  agreed.kv_blocks = least.kv_blocks;
  agreed.max_step_tokens = static_cast<int32_t>(least.step_tokens);
  agreed.max_model_len = least.model_len;
  plan(checked, agreed);
  return checked;
}

// 1, 2, 4, ... and `most` itself.
std::vector<int32_t> sizes_up_to(int32_t most) {
  std::vector<int32_t> sizes;
  for (int32_t n = 1; n < most; n *= 2) sizes.push_back(n);
  sizes.push_back(most);
  return sizes;
}

// Walks the decoder through steps of every kind and size before the first real one, so that none of those has to
// compile or allocate anything.
void rehearse(LoadedModel& model) {
  const EngineLimits& limits = model.plan.limits;
  const auto run = [&](int32_t tokens, int32_t decode_rows, int32_t samples, int32_t pooled = 0, bool own = false) {
    StagedStep step;
    step.states = std::min(samples, limits.max_state_rows);
    step.given_width = static_cast<int32_t>(own ? limits.state_width : limits.reads_width);
    step.pooled = pooled;
    step.tokens = tokens;
    step.decode_rows = decode_rows;
    step.seqs = decode_rows < tokens ? decode_rows + 1 : decode_rows;
    step.samples = samples;
    step.max_query_len = std::max(1, tokens - decode_rows);
    step.max_seq_len = static_cast<int32_t>(limits.max_model_len);
    step.zeros = step.copies = step.resets = 1;
    model.device->rehearse(step, [&] { model.decoder->encode(step, *model.device); });
  };
  for (const int32_t rows : sizes_up_to(limits.max_seqs)) {
    run(rows, rows, std::min(rows, limits.max_sample_rows));
    if (limits.reads_width > 0) run(rows, rows, std::min(rows, limits.max_sample_rows), 0, true);
  }
  for (const int32_t tokens : sizes_up_to(limits.max_step_tokens)) {
    run(tokens, 0, std::min(tokens, limits.max_sample_rows));
    run(tokens, 0, 1);
    if (tokens > 1) run(tokens, 1, 1);
    if (limits.pooling) run(tokens, 0, 0, 1);
  }
}

}  // namespace

ModelFiles open_model(const EngineOptions& options) {
  if (options.load_format != "auto" && options.load_format != "dummy")
    throw_error(ErrorKind::bad_call, "--load-format {}: must be auto or dummy", options.load_format);
  const bool dummy = options.load_format == "dummy";
  if (!dummy && options.dtype != "auto")
    throw_error(ErrorKind::bad_call,
                "--dtype {}: is for --load-format dummy; weights keep the format of their file, or take that of "
                "--quantize",
                options.dtype);
  std::optional<QuantScheme> scheme;
  if (!options.quantize.empty()) scheme = parse_quantize(options.quantize);
  ModelFiles files =
      dummy ? open_dummy_model(options.model, options.dtype) : open_model(options.model, options.threads);
  if (!options.head_of.empty() && files.config.mtp_layers > 0) files.config = mtp_head(files.config);
  if (!scheme) return files;
  files.checkpoint = quantize_checkpoint(files.checkpoint, files.config, files.style(), *scheme, options.threads);
  files.config.weight_format = dominant_format(*files.checkpoint);
  return files;
}

LoadedModel load_model(const EngineOptions& options) {
  if (options.ranks() != (options.group ? options.group->size() : 1))
    throw_error(ErrorKind::bad_call, "--tp {} and --pp {}: start {} processes, `mpirun -n {} ingot ...`", options.tp,
                options.pp, options.ranks(), options.ranks());
  Checked checked = options.group ? check_together(options) : check_model(options, 0);
  LoadedModel model;
  model.group = options.group;
  model.options = options;
  model.options.progress = {};
  model.config = checked.files->config;
  model.plan = checked.plan;
  model.device = std::move(checked.device);
  keep_packed(options, checked.state, *checked.files->checkpoint, *checked.weights, *model.device);
  ModelWeights weights = checked.weights->load(*model.device, options.progress);
  model.plan.found_bytes = model.device->found_bytes();
  model.device->create_scratch(model.plan.scratch.bytes);
  model.device->create_kv_cache(model.plan.kv);
  model.device->create_host_blocks(model.plan.limits.host_blocks);
  model.device->create_sampler(model.plan.sampler);
  model.device->create_io(model.plan.stage_bytes, model.plan.output, model.plan.limits.steps_in_flight);
  const ModelShare& share = checked.weights->share();
  const ModelFiles& files = *checked.files;
  model.decoder = std::make_unique<Decoder>(
      model.config, share, std::move(weights), model.plan.scratch, model.plan.limits.pooling,
      share.embedding_in_file ? file_table(files.checkpoint, files.config, files.style()) : nullptr,
      options.gives_states ? state_layers(options, model.config.layers) : std::vector<int>());
  model.embedded = checked.embedded;
  rehearse(model);
  if (model.group) {
    // The others would wait for what a failed step was to send, and would be a step ahead or behind afterwards.
    model.device->on_failure([group = model.group](const std::string& why) { group->abort(why); });
    model.group->compare({});  // ready are all of them or none
  }
  model.device->end_weights();
  return model;
}

ModelInfo describe(const ModelConfig& config) {
  return {.architecture = config.architecture,
          .name = config.name,
          .weight_format = config.weight_format,
          .layers = config.layers,
          .hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .ffn = config.ffn,
          .experts = config.experts,
          .experts_per_token = config.experts_per_token,
          .vocab = config.vocab,
          .max_position = config.max_position,
          .eos_ids = config.eos_ids,
          .has_head = config.has_head,
          .reranks = config.reranks,
          .query_prompt = config.query_prompt,
          .document_prompt = config.document_prompt,
          .sampling = config.sampling,
          .guessed_ids = config.head.guessed_ids};
}

ModelInspection inspect_model(const EngineOptions& options, int rank, std::span<const StageHost> hosts) {
  Checked checked = check_model(options, rank, hosts);
  return {checked.files->config, checked.weights->share(), checked.plan};
}

}  // namespace ingot
