#include "engine/loader.h"

#include <utility>

#include "core/error.h"
#include "core/settings.h"
#include "engine/devices.h"
#include "model/open_model.h"
#include "model/weights.h"

namespace ingot {
namespace {

// Everything known about a model on a device before a byte of it is loaded.
struct Checked {
  ModelFiles files;
  std::unique_ptr<Backend> device;
  std::unique_ptr<WeightPlan> weights;
  MemoryPlan plan;
};

Checked check_model(const EngineOptions& options) {
  const Settings settings = Settings::from_environment();
  Checked checked;
  checked.files = open_model(options.model);
  checked.device = make_device(options, checked.files.checkpoint.get());
  const ModelConfig& config = checked.files.config;
  checked.weights = std::make_unique<WeightPlan>(*checked.files.checkpoint, config, checked.files.gguf != nullptr);
  checked.plan =
      plan_memory(config, options, settings, *checked.device, checked.weights->device_bytes(*checked.device));
  if (const std::optional<std::string> reason = checked.device->decline(config, checked.plan.kv))
    throw_error(ErrorKind::declined, "{} cannot run this model: {}", checked.device->info().name, *reason);
  return checked;
}

}  // namespace

LoadedModel load_model(const EngineOptions& options) {
  Checked checked = check_model(options);
  LoadedModel model;
  model.config = checked.files.config;
  model.plan = checked.plan;
  model.device = std::move(checked.device);
  ModelWeights weights = checked.weights->load(*model.device, options.progress);
  model.device->create_scratch(model.plan.scratch.bytes);
  model.device->create_kv_cache(model.plan.kv);
  model.device->create_sampler(model.plan.sampler);
  model.device->create_io(model.plan.stage_bytes, model.plan.output);
  model.decoder = std::make_unique<Decoder>(model.config, std::move(weights), model.plan.scratch);
  return model;
}

ModelInspection inspect_model(const EngineOptions& options) {
  Checked checked = check_model(options);
  return {checked.files.config, checked.plan};
}

}  // namespace ingot
