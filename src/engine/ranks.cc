#include "engine/ranks.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace ingot {
namespace {

using nlohmann::json;

std::vector<std::byte> bytes_of(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

json json_of(const std::vector<std::byte>& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return json::parse(text, text + bytes.size());
}

// f(name, member) for everything that rank 0 decides.
template <typename Options, typename F>
void each_option(Options& options, F&& f) {
  f("load_format", options.load_format);
  f("dtype", options.dtype);
  f("quantize", options.quantize);
  f("max_model_len", options.max_model_len);
  f("kv_blocks", options.kv_blocks);
  f("block_size", options.block_size);
  f("kv_dtype", options.kv_dtype);
  f("max_step_tokens", options.max_step_tokens);
  f("max_seqs", options.max_seqs);
  f("max_logits_rows", options.max_logits_rows);
  f("embeddings", options.embeddings);
  f("pooling", options.pooling);
  f("pp_layers", options.pp_layers);
}

template <typename Note, typename F>
void each_field(Note& note, F&& f) {
  f("machine", note.machine);
  f("version", note.version);
  f("path", note.path);
  f("settings", note.settings);
  f("weights", note.weights);
  f("kv_blocks", note.kv_blocks);
  f("step_tokens", note.step_tokens);
  f("model_len", note.model_len);
  f("error", note.error);
  f("kind", note.kind);
}

[[noreturn]] void refuse(ErrorKind kind, std::string text) { throw AgreedError(kind, std::move(text)); }

void check_alike(const std::vector<RankNote>& notes, size_t rank) {
  const RankNote &first = notes[0], &note = notes[rank];
  const std::string who = fmt::format("rank {} on {}", rank, note.machine);
  const bool everybodys = rank == 0 && note.kind != ErrorKind::out_of_memory;
  if (!note.error.empty()) refuse(note.kind, everybodys ? note.error : fmt::format("{}: {}", who, note.error));
  if (note.version != first.version)
    refuse(ErrorKind::bad_call, fmt::format("{} is Ingot {}, rank 0 on {} is {}: run the same on all", who,
                                            note.version, first.machine, first.version));
  if (note.weights != first.weights)
    refuse(ErrorKind::bad_call,
           fmt::format("{} has another model than rank 0 on {}: give all of them the same files", who, first.machine));
  if (note.path != first.path)
    refuse(ErrorKind::bad_call, fmt::format("{} computes by {}, rank 0 on {} by {}: force one that both have, --isa",
                                            who, note.path, first.machine, first.path));
  if (note.settings != first.settings)
    refuse(ErrorKind::bad_call, fmt::format("{} has {}, rank 0 on {} has {}: set them alike (mpirun -x NAME)", who,
                                            note.settings, first.machine, first.settings));
}

}  // namespace

void tell_options(Group& group, const EngineOptions& options) {
  json value;
  each_option(options, [&](const char* name, const auto& member) { value[name] = member; });
  group.tell(bytes_of(value));
}

bool hear_options(Group& group, EngineOptions& options) {
  const std::vector<std::byte> message = group.hear();
  if (message.empty()) return false;
  const json value = json_of(message);
  each_option(options, [&](const char* name, auto& member) { value.at(name).get_to(member); });
  return true;
}

uint64_t weights_mark(const Checkpoint& checkpoint) {
  constexpr size_t kBytes = 64;  // of a tensor, at its beginning and its end
  uint64_t mark = 14695981039346656037u;
  const auto add = [&mark](std::span<const std::byte> bytes) {  // FNV-1a
    for (const std::byte b : bytes) mark = (mark ^ static_cast<uint64_t>(b)) * 1099511628211u;
  };
  for (const TensorView& tensor : checkpoint.tensors()) {
    add(std::as_bytes(std::span(tensor.name)));
    add(std::as_bytes(std::span(&tensor.dtype, 1)));
    add(std::as_bytes(std::span(tensor.shape)));
  }
  for (const TensorView& tensor : checkpoint.stored().tensors()) {
    if (tensor.is_computed()) continue;
    const size_t some = std::min(kBytes, tensor.data.size());
    add(tensor.data.first(some));
    add(tensor.data.last(some));
  }
  return mark;
}

namespace {

std::vector<json> compare(Group& group, const json& mine) {
  std::vector<json> notes;
  for (const std::vector<std::byte>& bytes : group.compare(bytes_of(mine))) notes.push_back(json_of(bytes));
  return notes;
}

}  // namespace

std::vector<StageHost> compare_hosts(Group& group, int tp, const StageHost& mine) {
  const std::vector<json> notes =
      compare(group, {{"machine", group.machine()}, {"memory", mine.memory}, {"speed", mine.speed}});
  // Ranks of a machine are as fast as each other: what differs is when they looked.
  std::map<std::string, std::pair<double, int>> machines;  // the sum of speeds, and how many
  for (const json& note : notes) {
    auto& [sum, count] = machines[note["machine"]];
    sum += note["speed"].get<double>();
    ++count;
  }
  std::vector<StageHost> hosts;
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    const auto& [sum, count] = machines[notes[rank]["machine"]];
    const StageHost host{.memory = notes[rank]["memory"], .speed = sum / count};
    if (rank % static_cast<size_t>(tp) == 0) hosts.push_back(host);
    hosts.back().memory = std::min(hosts.back().memory, host.memory);
    hosts.back().speed = std::min(hosts.back().speed, host.speed);
  }
  // A measurement is not worth uneven stages by itself.
  constexpr double kAlike = 0.75;
  const auto [slowest, fastest] = std::ranges::minmax(hosts, {}, &StageHost::speed);
  if (slowest.speed >= kAlike * fastest.speed)
    for (StageHost& host : hosts) host.speed = fastest.speed;
  return hosts;
}

void tell_stages(Group& group, std::span<const Range> stages) {
  json value = json::array();
  for (const Range& layers : stages) value.push_back({layers.begin, layers.end});
  group.tell(bytes_of(value));
}

std::vector<Range> hear_stages(Group& group) {
  std::vector<Range> stages;
  const std::vector<std::byte> message = group.hear();
  if (message.empty()) return stages;
  for (const json& layers : json_of(message)) stages.push_back({layers[0], layers[1]});
  return stages;
}

RankNote agree(Group& group, const RankNote& mine) {
  json value;
  each_field(mine, [&](const char* name, const auto& member) { value[name] = member; });
  std::vector<RankNote> notes;
  for (const json& theirs : compare(group, value))
    each_field(notes.emplace_back(), [&](const char* name, auto& member) { theirs.at(name).get_to(member); });
  RankNote least = notes[0];
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    check_alike(notes, rank);
    least.kv_blocks = std::min(least.kv_blocks, notes[rank].kv_blocks);
    least.step_tokens = std::min(least.step_tokens, notes[rank].step_tokens);
    least.model_len = std::min(least.model_len, notes[rank].model_len);
  }
  return least;
}

}  // namespace ingot
