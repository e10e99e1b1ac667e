#include "engine/loader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/settings.h"
#include "engine/devices.h"
#include "model/config_read.h"
#include "model/decoder.h"
#include "model/quantized.h"
#include "model/weights.h"

namespace ingot {
namespace {

// Everything known about a model on a device before a byte of it is loaded.
struct Checked {
  ModelFiles files;
  std::unique_ptr<Backend> device;
  std::unique_ptr<CheckedWeights> weights;
  MemoryPlan plan;
};

Checked check_model(const EngineOptions& options) {
  const Settings settings = Settings::from_environment();
  Checked checked;
  checked.files = open_model(options);
  checked.device = make_device(options, checked.files.checkpoint.get());
  const ModelConfig& config = checked.files.config;
  checked.weights = std::make_unique<CheckedWeights>(*checked.files.checkpoint, config, checked.files.style());
  checked.plan =
      plan_memory(config, options, settings, *checked.device, checked.weights->device_bytes(*checked.device));
  if (const std::optional<std::string> reason = checked.device->decline(model_shape(config), checked.plan.kv))
    throw_error(ErrorKind::declined, "{} cannot run this model: {}", checked.device->info().name, *reason);
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
  const auto run = [&](int32_t tokens, int32_t decode_rows, int32_t samples, int32_t pooled = 0) {
    StagedStep step;
    step.pooled = pooled;
    step.tokens = tokens;
    step.decode_rows = step.generated_rows = decode_rows;
    step.seqs = decode_rows < tokens ? decode_rows + 1 : decode_rows;
    step.samples = samples;
    step.max_query_len = std::max(1, tokens - decode_rows);
    step.max_seq_len = static_cast<int32_t>(limits.max_model_len);
    step.zeros = step.copies = step.resets = 1;
    model.device->rehearse(step, [&] { model.decoder->encode(step, *model.device); });
  };
  for (const int32_t rows : sizes_up_to(limits.max_seqs)) run(rows, rows, std::min(rows, limits.max_sample_rows));
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
  if (!scheme) return files;
  files.checkpoint = quantize_checkpoint(files.checkpoint, files.config, files.style(), *scheme, options.threads);
  files.config.weight_format = dominant_format(*files.checkpoint);
  return files;
}

LoadedModel load_model(const EngineOptions& options) {
  Checked checked = check_model(options);
  LoadedModel model;
  model.options = options;
  model.options.progress = {};
  model.config = checked.files.config;
  model.plan = checked.plan;
  model.device = std::move(checked.device);
  ModelWeights weights = checked.weights->load(*model.device, options.progress);
  model.device->create_scratch(model.plan.scratch.bytes);
  model.device->create_kv_cache(model.plan.kv);
  model.device->create_host_blocks(model.plan.limits.host_blocks);
  model.device->create_sampler(model.plan.sampler);
  model.device->create_io(model.plan.stage_bytes, model.plan.output);
  model.decoder =
      std::make_unique<Decoder>(model.config, std::move(weights), model.plan.scratch, model.plan.limits.pooling);
  rehearse(model);
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
          .sampling = config.sampling};
}

ModelInspection inspect_model(const EngineOptions& options) {
  Checked checked = check_model(options);
  return {checked.files.config, checked.plan};
}

}  // namespace ingot
