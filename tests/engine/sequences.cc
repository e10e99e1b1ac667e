#include "engine/sequences.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "ingot/step_builder.h"
#include "model/config.h"

namespace ingot::testing {
namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// float32 [rows, cols] in C order, version 1 header.
Logits read_npy(const std::filesystem::path& path) {
  const std::string bytes = read_all(path);
  uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  const std::string text = bytes.substr(10, header);
  size_t rows = 0, cols = 0;
  if (text.find("'<f4'") == std::string::npos ||
      std::sscanf(text.c_str() + text.find("'shape':"), "'shape': (%zu, %zu)", &rows, &cols) != 2)
    throw std::runtime_error(path.string() + " is not a float32 matrix");
  Logits out(rows, std::vector<float>(cols));
  for (size_t r = 0; r < rows; ++r) std::memcpy(out[r].data(), bytes.data() + 10 + header + r * cols * 4, cols * 4);
  return out;
}

}  // namespace

std::vector<Logits> run_sequences(Engine& engine, const std::vector<Sequence>& sequences) {
  const EngineLimits& limits = engine.limits();
  StepBuilder builder(limits.block_size);
  std::vector<Logits> logits(sequences.size());
  std::vector<int64_t> done;
  for (const Sequence& sequence : sequences) done.push_back(sequence.start);
  const SamplingParams greedy{.temperature = 0};
  for (;;) {
    // Sequences with one row to run come first: they are the decode rows.
    std::vector<std::pair<int64_t, size_t>> plan;  // rows, sequence
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t left = static_cast<int64_t>(sequences[s].ids.size()) - done[s];
      const int64_t most = sequences[s].wanted ? limits.max_logits_rows : limits.max_step_tokens;
      if (left > 0) plan.push_back({std::min({left, sequences[s].chunk, most}), s});
    }
    if (plan.empty()) return logits;
    std::stable_sort(plan.begin(), plan.end(), [](auto& a, auto& b) { return (a.first == 1) > (b.first == 1); });
    builder.clear();
    std::vector<size_t> owners;
    for (auto& [rows, s] : plan) {
      rows = std::min<int64_t>(rows, limits.max_step_tokens - builder.rows());
      if (sequences[s].wanted)
        rows = std::min<int64_t>(rows, limits.max_logits_rows - static_cast<int64_t>(owners.size()));
      if (rows <= 0) continue;
      const std::span<const int32_t> ids(sequences[s].ids.data() + done[s], static_cast<size_t>(rows));
      const int32_t first = builder.add(ids, done[s], sequences[s].blocks);
      done[s] += rows;
      if (!sequences[s].wanted) continue;
      for (int32_t r = 0; r < rows; ++r) {
        builder.sample(first + r, greedy, -1, {.kind = RowOutput::Kind::full_logits});
        owners.push_back(s);
      }
    }
    StepResult result = engine.run(builder.finish());
    for (size_t r = 0; r < owners.size(); ++r) logits[owners[r]].push_back(std::move(result.rows[r].logits));
  }
}

Logits run_alone(Engine& engine, const std::vector<int32_t>& ids) {
  Sequence sequence;
  sequence.ids = ids;
  sequence.blocks = assign_blocks(engine.limits(), 1, static_cast<int64_t>(ids.size()), 0)[0];
  return run_sequences(engine, {sequence})[0];
}

Logits run_as_served(Engine& engine, const std::vector<int32_t>& ids, size_t decoded) {
  Sequence prompt{{ids.begin(), ids.end() - static_cast<int64_t>(decoded)}};
  prompt.blocks = assign_blocks(engine.limits(), 1, static_cast<int64_t>(ids.size()), 5)[0];
  Logits logits = run_sequences(engine, {prompt})[0];
  const Sequence answer{ids, prompt.blocks, 1, true, static_cast<int64_t>(prompt.ids.size())};
  const std::vector<Logits> answered = run_sequences(engine, {answer});
  logits.insert(logits.end(), answered[0].begin(), answered[0].end());
  return logits;
}

Logits run_row_by_row(Engine& engine, const std::vector<int32_t>& ids) {
  const std::vector<int32_t> blocks = assign_blocks(engine.limits(), 1, static_cast<int64_t>(ids.size()), 5)[0];
  StepBuilder builder(engine.limits().block_size);
  Logits logits;
  for (size_t at = 0; at < ids.size(); ++at) {
    builder.clear();
    builder.add({&ids[at], 1}, static_cast<int64_t>(at), blocks);
    builder.sample(0, {.temperature = 0}, -1, {.kind = RowOutput::Kind::full_logits});
    builder.finish();
    if (at % 2 == 0) {
      builder.step().kind = StepKind::prefill;
      builder.step().num_decode_tokens = 0;
    }
    logits.push_back(std::move(engine.run(builder.step()).rows[0].logits));
  }
  return logits;
}

std::vector<int32_t> random_ids(size_t count, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

std::vector<std::vector<int32_t>> assign_blocks(const EngineLimits& limits, size_t count, int64_t length,
                                                uint32_t seed) {
  const size_t each = static_cast<size_t>((length + limits.block_size - 1) / limits.block_size);
  std::vector<int32_t> all(static_cast<size_t>(limits.num_blocks));
  if (each * count > all.size()) throw std::runtime_error("the test needs more KV blocks");
  std::iota(all.begin(), all.end(), 0);
  if (seed != 0) std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  std::vector<std::vector<int32_t>> out(count);
  for (size_t s = 0; s < count; ++s) out[s].assign(all.begin() + s * each, all.begin() + (s + 1) * each);
  return out;
}

std::string fixture_model(const std::string& name) { return std::string(INGOT_FIXTURES) + "/models/" + name; }
std::string fixture_config(const std::string& name) { return std::string(INGOT_FIXTURES) + "/configs/" + name; }

Reference fixture_reference(const std::string& name) {
  const std::filesystem::path dir = fixture_model(name);
  Reference reference;
  reference.ids = nlohmann::json::parse(read_all(dir / "ids.json")).get<std::vector<int32_t>>();
  reference.logits = read_npy(dir / "logits.npy");
  return reference;
}

EngineOptions fixture_options(const std::string& model_path, const std::string& device) {
  EngineOptions options;
  options.model = model_path;
  options.device = device;
  options.threads = 2;
  options.max_seqs = 1;
  options.max_model_len = 64;
  options.max_step_tokens = device == "metal" && !soak() ? 1 : 64;
  options.max_logits_rows = options.max_step_tokens;
  return options;
}

double reference_difference(const EngineOptions& options, const std::string& name) {
  const std::unique_ptr<Engine> engine = Engine::load(options);
  Reference reference = fixture_reference(name);
  if (engine->limits().max_step_tokens > 1)
    return max_difference(run_as_served(*engine, reference.ids), reference.logits);
  // Longer than the windows of the fixtures; wide models have none.
  reference.ids.resize(engine->model().hidden > 128 ? 8 : 20);
  reference.logits.resize(reference.ids.size());
  return max_difference(run_row_by_row(*engine, reference.ids), reference.logits);
}

double max_difference(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t r = 0; r < a.size(); ++r) {
    if (a[r].size() != b[r].size()) return INFINITY;
    for (size_t i = 0; i < a[r].size(); ++i) {
      const double difference = std::abs(static_cast<double>(a[r][i]) - b[r][i]);
      most = std::max(most, std::isnan(difference) ? INFINITY : difference);
    }
  }
  return most;
}

std::string default_model() {
  const char* path = std::getenv("INGOT_DEFAULT_MODEL");
  return path != nullptr ? path : "";
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace ingot::testing
