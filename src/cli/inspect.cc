#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/devices.h"
#include "engine/loader.h"

namespace ingot::cli {
namespace {

struct InspectArgs {
  ModelArgs model;
  bool tensors = false;
};

void print_config(const ModelConfig& c) {
  fmt::print("architecture     {}\n", c.architecture);
  if (!c.name.empty()) fmt::print("name             {}\n", c.name);
  fmt::print("layers           {}\n", c.layers);
  fmt::print("hidden           {}\n", c.hidden);
  fmt::print("heads            {} ({} KV) of {}\n", c.heads, c.kv_heads, c.head_size);
  fmt::print("MLP              {}\n", c.ffn);
  if (c.experts > 0)
    fmt::print("experts          {} of {} a token, of width {}\n", c.experts_per_token, c.experts, c.expert_ffn);
  fmt::print("vocabulary       {}{}\n", c.vocab, c.tied_embeddings ? ", tied embeddings" : "");
  fmt::print("context          {}\n", c.max_position);
  if (c.learned_positions)
    fmt::print("positions        learned\n");
  else
    fmt::print("rope             theta {}, {} dims\n", c.rope_theta, c.rope_dims);
  if (c.sliding_window > 0) fmt::print("sliding window   {}\n", c.sliding_window);
  fmt::print("end of text      {}\n", fmt::join(c.eos_ids, ", "));
  if (c.packed.method == PackedFormat::Method::none) return;
  constexpr const char* kMethods[] = {"", "AWQ", "GPTQ", "MLX"};
  fmt::print("packed by        {} in {} bits, groups of {}{}\n", kMethods[static_cast<size_t>(c.packed.method)],
             c.packed.width.bits, c.packed.width.group_size < 0 ? "a row" : std::to_string(c.packed.width.group_size),
             c.packed.modules.empty() ? "" : ", some modules otherwise");
}

void print_tensors(const Checkpoint& checkpoint, bool all) {
  std::map<std::string_view, std::pair<size_t, uint64_t>> formats;  // name -> count, bytes
  for (const TensorView& t : checkpoint.tensors()) {
    auto& [count, bytes] = formats[dtype_name(t.dtype)];
    ++count;
    bytes += t.data.size();
    if (all) fmt::print("  {:<48} {:<5} [{}]\n", t.name, dtype_name(t.dtype), fmt::join(t.shape, ", "));
  }
  fmt::print("tensors          {} in {}\n", checkpoint.tensors().size(), format_bytes(checkpoint.file_bytes()));
  for (const auto& [name, sum] : formats)
    fmt::print("  {:<14} {} tensors, {}\n", name, sum.first, format_bytes(sum.second));
}

void inspect(const InspectArgs& args) {
  EngineOptions options = args.model.engine;
  options.model = resolve_model(args.model.model);
  const ModelFiles files = open_model(options);
  fmt::print("model            {}\n", options.model);
  print_config(files.config);
  print_tensors(*files.checkpoint, args.tensors);
  bool accepted = false;
  for (const DeviceStatus& device : list_devices()) {
    if (!device.usable) {
      fmt::print("{:<16} not available: {}\n", device.name, device.detail);
      continue;
    }
    options.device = device.name;
    try {
      const ModelInspection model = inspect_model(options);
      accepted = true;
      fmt::print("{:<16} accepted: {}\n", device.name, device.detail);
      fmt::print("  memory plan    {} (of {} available)\n", model.plan.describe(),
                 format_bytes(model.plan.available_bytes));
      fmt::print("  limits         {} tokens and {} sequences a step, {} KV blocks of {}, sequences up to {}\n",
                 model.plan.limits.max_step_tokens, model.plan.limits.max_seqs, model.plan.limits.num_blocks,
                 model.plan.limits.block_size, model.plan.limits.max_model_len);
    } catch (const Error& error) {
      fmt::print("{:<16} declined: {}\n", device.name, error.what());
    }
  }
  if (!accepted) throw_error(ErrorKind::declined, "no device here runs this model");
}

}  // namespace

void add_inspect(Program& program) {
  auto [command, args] = program.add_command(
      "inspect", "a model's configuration, tensors and memory plan, and which devices take it", inspect);
  add_engine_options(command, args.model);
  add_model_argument(command, args.model);
  command.flag("--tensors", args.tensors, "list every tensor");
}

}  // namespace ingot::cli
