#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

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
  std::vector<std::string> hosts;
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

// Where a rank would run.
struct RankHost {
  std::string name;
  uint64_t memory = 0;  // its part of the machine's
};

// NAME, NAME:RANKS or NAME:RANKS:GIB for each machine, as many ranks as there are.
std::vector<RankHost> parse_hosts(const std::vector<std::string>& given, const EngineOptions& options) {
  std::vector<RankHost> hosts;
  for (const std::string& text : given) {
    std::istringstream parts(text);
    std::string name, ranks = "1", gib = "0";
    std::getline(parts, name, ':');
    std::getline(parts, ranks, ':');
    std::getline(parts, gib, ':');
    char* end = nullptr;
    const long count = std::strtol(ranks.c_str(), &end, 10);
    const bool counted = *end == 0 && count > 0 && count <= options.ranks();
    const double memory = std::strtod(gib.c_str(), &end);
    if (name.empty() || !counted || *end != 0 || memory < 0)
      throw_error(ErrorKind::bad_call, "--hosts {}: must be NAME, NAME:RANKS or NAME:RANKS:GIB", text);
    const auto bytes = static_cast<uint64_t>(memory * (1ull << 30)) / static_cast<uint64_t>(count);
    hosts.insert(hosts.end(), static_cast<size_t>(count), {name, bytes});
  }
  if (!hosts.empty() && hosts.size() != static_cast<size_t>(options.ranks()))
    throw_error(ErrorKind::bad_call, "--hosts has room for {} ranks, --tp {} and --pp {} make {}", hosts.size(),
                options.tp, options.pp, options.ranks());
  return hosts;
}

// The poorest rank of each stage.
std::vector<StageHost> stage_hosts(const std::vector<RankHost>& hosts, int tp) {
  std::vector<StageHost> stages;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank % static_cast<size_t>(tp) == 0) stages.push_back({.memory = hosts[rank].memory});
    stages.back().memory = std::min(stages.back().memory, hosts[rank].memory);
  }
  return stages;
}

// What each rank would have. Throws for the first that cannot take it, with its number where that is about memory.
std::vector<ModelInspection> inspect_ranks(const EngineOptions& options, const std::vector<RankHost>& hosts) {
  const std::vector<StageHost> stages = stage_hosts(hosts, options.tp);
  std::vector<ModelInspection> ranks;
  for (int rank = 0; rank < options.ranks(); ++rank) {
    try {
      ranks.push_back(inspect_model(options, rank, stages));
    } catch (const Error& error) {
      if (options.ranks() == 1 || error.kind() != ErrorKind::out_of_memory) throw;
      throw_error(error.kind(), "rank {}{}: {}", rank,
                  hosts.empty() ? "" : " on " + hosts[static_cast<size_t>(rank)].name, error.what());
    }
  }
  return ranks;
}

// How the model is cut for --tp and --pp, and what a token costs on the way between ranks.
void print_ranks(const EngineOptions& options, const std::vector<RankHost>& hosts,
                 const std::vector<ModelInspection>& ranks) {
  int64_t most_layers = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [config, share, plan] = ranks[rank];
    most_layers = std::max(most_layers, share.stage.layers.size());
    std::vector<std::string> parts;
    if (options.pp > 1) parts.push_back(describe("layers", share.stage.layers, config.layers));
    if (share.embedding_in_file) parts.emplace_back("embedding left in the file");
    if (options.tp > 1) {
      parts.push_back(describe("heads", share.heads, config.heads));
      parts.push_back(describe("KV heads", share.kv_heads, config.kv_heads));
      parts.push_back(describe("MLP", share.ffn, config.ffn));
      if (config.experts > 0) parts.push_back(describe("experts", share.experts, config.experts));
    }
    fmt::print("  rank {}         {}{}\n", rank, fmt::join(parts, ", "),
               hosts.empty() ? "" : " on " + hosts[rank].name);
    fmt::print("                 {} (of {} available)\n", plan.describe(), format_bytes(plan.available_bytes));
  }
  const ModelConfig& config = ranks[0].config;
  const uint64_t row = static_cast<uint64_t>(config.hidden) * sizeof(float);
  if (options.pp > 1)
    fmt::print("  a stage sends  1 message a step and {} a token; the last 12 bytes to rank 0 for one that is drawn\n",
               format_bytes(row * static_cast<uint64_t>(options.tp)));
  if (options.tp == 1) return;
  // Of a sum two ranks send each other all, four a quarter to each of the others, twice (SumRanksOp). The embedding is
  // another one.
  const auto sums = static_cast<uint64_t>(2 * most_layers + (ranks[0].share.embedding_in_file ? 0 : 1));
  const uint64_t messages = options.tp == 2 ? 1 : 6, bytes = options.tp == 2 ? row : 6 * (row / 4);
  const uint64_t logits = static_cast<uint64_t>(config.vocab / options.tp) * sizeof(float);
  fmt::print("  a rank sends   {} messages and {} a token, {} of logits more to rank 0 for one that is drawn\n",
             sums * messages, format_bytes(sums * bytes), format_bytes(logits));
}

void inspect(const InspectArgs& args) {
  EngineOptions options = args.model.engine;
  options.model = resolve_model(args.model.model);
  const ModelFiles files = open_model(options);
  fmt::print("model            {}\n", options.model);
  print_config(files.config);
  print_tensors(*files.checkpoint, args.tensors);
  const std::vector<RankHost> hosts = parse_hosts(args.hosts, options);
  bool accepted = false;
  for (const DeviceStatus& device : list_devices()) {
    if (!device.usable) {
      fmt::print("{:<16} not available: {}\n", device.name, device.detail);
      continue;
    }
    options.device = device.name;
    try {
      const std::vector<ModelInspection> ranks = inspect_ranks(options, hosts);
      const auto blocks = [](const ModelInspection& rank) { return rank.plan.limits.num_blocks; };
      const MemoryPlan& plan = std::ranges::min_element(ranks, {}, blocks)->plan;
      accepted = true;
      fmt::print("{:<16} accepted: {}\n", device.name, device.detail);
      if (options.ranks() > 1) {
        print_ranks(options, hosts, ranks);
      } else {
        fmt::print("  memory plan    {} (of {} available)\n", plan.describe(), format_bytes(plan.available_bytes));
      }
      fmt::print("  limits         {} tokens and {} sequences a step, {} KV blocks of {}, sequences up to {}\n",
                 plan.limits.max_step_tokens, plan.limits.max_seqs, plan.limits.num_blocks, plan.limits.block_size,
                 plan.limits.max_model_len);
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
  command
      .option("--hosts", args.hosts,
              "machines for --tp and --pp, in the order of ranks: NAME, NAME:RANKS or NAME:RANKS:GIB")
      .split_at(',');
  command.flag("--tensors", args.tensors, "list every tensor");
}

}  // namespace ingot::cli
