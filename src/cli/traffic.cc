#include "cli/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backend/backend.h"
#include "backend/metal/traffic.h"
#include "cli/measuring.h"
#include "core/error.h"
#include "engine/internals.h"
#include "ingot/step_builder.h"
#include "model/decoder.h"

namespace ingot::cli {

void print_traffic(const ModelArgs& given, const std::vector<int32_t>& batches, int64_t prompt_len, bool json) {
  ModelArgs model = given;
  EngineOptions& options = model.engine;
  options.device = "metal";
  if (!count_metal_traffic())
    throw_error(ErrorKind::declined,
                "--traffic: a real GPU does not count its memory traffic; run it on Linux, where "
                "--device metal is the software device");
  const int32_t largest = *std::max_element(batches.begin(), batches.end());
  options.max_seqs = largest;
  if (options.max_model_len == 0) options.max_model_len = prompt_len + 1;
  if (options.kv_blocks == 0) options.kv_blocks = prompt_len / options.block_size + largest;
  const std::unique_ptr<Engine> engine = load_engine(model);
  const Backend& device = EngineInternals::device(*engine);

  // One prompt runs; the other sequences have it in common, but for the block that the new token goes to. What a kernel
  // loads does not depend on whose blocks they are.
  const int64_t each = prompt_len / options.block_size + 1;
  StepBuilder builder(options.block_size);
  const SamplingParams greedy{.temperature = 0};
  std::vector<std::vector<int32_t>> blocks(static_cast<size_t>(largest),
                                           std::vector<int32_t>(static_cast<size_t>(each)));
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < prompt_len; ++i) prompt.push_back(prompt_token(i, engine->limits().vocab));
  std::iota(blocks[0].begin(), blocks[0].end(), 0);
  for (int64_t done = 0; done < prompt_len;) {
    const int64_t rows = std::min<int64_t>(engine->limits().max_step_tokens, prompt_len - done);
    builder.clear();
    builder.add(std::span(prompt).subspan(done, rows), done, blocks[0]);
    engine->run(builder.finish());
    done += rows;
  }
  builder.clear();
  for (int32_t s = 1; s < largest; ++s) {
    blocks[s] = blocks[0];
    blocks[s].back() = static_cast<int32_t>(each - 1 + s);
    builder.step().block_copies.push_back({blocks[0].back(), blocks[s].back()});
  }
  builder.add({&prompt.back(), 1}, prompt_len - 1, blocks[0]);
  engine->run(builder.finish());

  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  if (!json)
    fmt::print("{:>5} {:>13} {:>7} {:>13} {:>7} {:>13} {:>13} {:>7} {:>10} {:>9}\n", "batch", "weights B", "x min",
               "KV B", "x min", "activations B", "unique B", "x min", "dispatches", "barriers");
  for (const int32_t batch : batches) {
    builder.clear();
    for (int32_t s = 0; s < batch; ++s) {
      builder.add({&prompt.back(), 1}, prompt_len, blocks[s]);
      builder.sample(s, greedy);
    }
    const uint64_t barriers = device.counters().barriers;
    take_metal_traffic();
    const StepStats stats = engine->run(builder.finish()).stats;
    const MetalTraffic traffic = take_metal_traffic();
    const uint64_t least =
        DecoderScratch::of(EngineInternals::config(*engine), whole_model(EngineInternals::config(*engine)), batch,
                           batch, device.info().activation)
            .least_loads;
    const auto ratio = [](uint64_t bytes, uint64_t least) {
      return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(least, 1));
    };
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const auto& kernel : traffic.kernels)
      kernels.push_back({{"kernel", kernel.name},
                         {"dispatches", kernel.dispatches},
                         {"loaded", kernel.loaded},
                         {"stored", kernel.stored}});
    report.push_back(
        {{"batch", batch},
         {"weights", traffic.weights},
         {"weights_min", stats.weight_bytes},
         {"kv", traffic.kv},
         {"kv_min", stats.kv_bytes},
         {"activations", traffic.activations},
         {"activations_unique", traffic.unique_activations},
         {"activations_min", least},
         {"stored", traffic.stored},
         {"dispatches", stats.dispatches},
         {"dispatches_per_layer", static_cast<double>(stats.dispatches) / static_cast<double>(engine->model().layers)},
         {"barriers", device.counters().barriers - barriers},
         {"kernels", kernels}});
    if (!json)
      fmt::print("{:>5} {:>13} {:>7.3f} {:>13} {:>7.3f} {:>13} {:>13} {:>7.3f} {:>10} {:>9}\n", batch, traffic.weights,
                 ratio(traffic.weights, stats.weight_bytes), traffic.kv, ratio(traffic.kv, stats.kv_bytes),
                 traffic.activations, traffic.unique_activations, ratio(traffic.unique_activations, least),
                 stats.dispatches, device.counters().barriers - barriers);
  }
  if (json) fmt::print("{}\n", report.dump());
}

}  // namespace ingot::cli
