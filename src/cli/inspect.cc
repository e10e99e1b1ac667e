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

std::string describe(const char* what, const Range& range, int64_t all) {
  return fmt::format("{} {} to {} of {}", what, range.begin, range.end - 1, all);
}

// How the model is cut for --tp, and what a token costs on the way between ranks.
void print_ranks(const EngineOptions& options) {
  for (int rank = 0; rank < options.tp; ++rank) {
    const auto [config, share, plan] = inspect_model(options, rank);
    fmt::print("  rank {}         {}, {}, {}", rank, describe("heads", share.heads, config.heads),
               describe("KV heads", share.kv_heads, config.kv_heads), describe("MLP", share.ffn, config.ffn));
    if (config.experts > 0) fmt::print(", {}", describe("experts", share.experts, config.experts));
    fmt::print("\n                 {} (of {} available)\n", plan.describe(), format_bytes(plan.available_bytes));
  }
  const ModelConfig config = inspect_model(options).config;
  const int rounds = options.tp == 2 ? 1 : 2;
  const uint64_t sums = static_cast<uint64_t>((2 * config.layers + 1) * rounds);
  const uint64_t logits = static_cast<uint64_t>(config.vocab / options.tp) * sizeof(float);
  fmt::print("  a rank sends   {} messages and {} a token, {} of logits more to rank 0 for one that is drawn\n", sums,
             format_bytes(sums * static_cast<uint64_t>(config.hidden) * sizeof(float)), format_bytes(logits));
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
      if (options.tp > 1) inspect_model(options, options.tp - 1);  // whether the last has a share, too
      accepted = true;
      fmt::print("{:<16} accepted: {}\n", device.name, device.detail);
      if (options.tp > 1) {
        print_ranks(options);
      } else {
        fmt::print("  memory plan    {} (of {} available)\n", model.plan.describe(),
                   format_bytes(model.plan.available_bytes));
      }
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
