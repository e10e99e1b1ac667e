#include "cli/bench_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/measuring.h"
#include "cli/progress.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "ingot/llm.h"

namespace ingot::cli {
namespace {

constexpr int kTimedRounds = 3;

// Tokens a second of answers that run side by side, first tokens left out. `round`: no two have the same prompts.
double round_speed(Llm& llm, const SpeculationBenchArgs& args, int32_t batch, int64_t round, bool speculate) {
  std::vector<std::shared_ptr<Generation>> running;
  for (int32_t i = 0; i < batch; ++i) {
    GenerationRequest request;
    for (int64_t t = 0; t < args.prompt_len; ++t)
      request.prompt.push_back(prompt_token(round * batch + i + t, llm.limits().vocab));
    request.sampling.temperature = 0;
    request.max_tokens = args.gen_len;
    request.ignore_eos = true;
    request.speculate = speculate;
    running.push_back(llm.submit(std::move(request)));
  }
  double speed = 0;
  for (const auto& generation : running) {
    while (!generation->done()) generation->wait(std::chrono::milliseconds(100));
    const GenerationSummary summary = generation->summary();
    if (!summary.error.empty()) throw_error(ErrorKind::device, "{}", summary.error);
    if (summary.decode_s > 0) speed += static_cast<double>(summary.completion_tokens - 1) / summary.decode_s;
  }
  return speed;
}

nlohmann::ordered_json measure_batch(Llm& llm, const SpeculationBenchArgs& args, int32_t batch, Progress& progress) {
  std::vector<double> plain, guessing, ratios;
  LlmStats before;
  uint64_t plain_steps = 0;
  for (int round = -1; round < kTimedRounds; ++round) {  // the first shows the device the sizes, and what they cost
    const LlmStats start = llm.stats();
    const double without = round_speed(llm, args, batch, 2 * round + 2, false);
    plain_steps += round < 0 ? 0 : llm.stats().steps - start.steps;
    const double with = round_speed(llm, args, batch, 2 * round + 3, true);
    if (round < 0) {
      before = llm.stats();
      continue;
    }
    plain.push_back(without);
    guessing.push_back(with);
    ratios.push_back(with / without);
    progress.update(static_cast<uint64_t>(round) + 1, kTimedRounds,
                    fmt::format("batch {}: {:.2f}x", batch, ratios.back()));
  }
  const LlmStats after = llm.stats();
  const auto steps = static_cast<double>(after.steps - before.steps - plain_steps);
  const auto drafted = static_cast<double>(after.draft_tokens - before.draft_tokens);
  const auto accepted = static_cast<double>(after.accepted_tokens - before.accepted_tokens);
  const auto draft_steps = static_cast<double>(after.draft_steps - before.draft_steps);
  return {{"batch", batch},
          {"plain_tok_s", median(plain)},
          {"speculated_tok_s", median(guessing)},
          {"ratio", median(ratios)},
          {"draft_tokens", drafted},
          {"accepted_tokens", accepted},
          {"tokens_per_step", static_cast<double>(kTimedRounds * batch * args.gen_len) / std::max(steps, 1.0)},
          {"draft_steps", draft_steps},
          {"draft_step_ms", draft_steps > 0 ? 1000 * (after.drafting_s - before.drafting_s) / draft_steps : 0}};
}

}  // namespace

void print_speculation(const SpeculationBenchArgs& args) {
  const int32_t largest = *std::ranges::max_element(args.batches);
  LlmOptions options;
  options.engine = args.model.engine;
  options.engine.model = args.model.model;
  options.engine.max_seqs = largest;
  if (options.engine.max_model_len == 0) options.engine.max_model_len = args.prompt_len + args.gen_len;
  // Beside what the texts fill, blocks that drafts may run ahead into.
  if (options.engine.kv_blocks == 0)
    options.engine.kv_blocks = largest * (ceil_div(args.prompt_len + args.gen_len, options.engine.block_size) + 3);
  options.prefix_caching = false;
  options.draft_acceptance = args.acceptance;
  set_speculation(args.speculation, options);
  const std::unique_ptr<Llm> llm = load_llm(options);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  {
    Progress progress("bench");
    for (const int32_t batch : args.batches) rows.push_back(measure_batch(*llm, args, batch, progress));
    progress.clear();
  }
  if (args.json) {
    const nlohmann::ordered_json report = {
        {"model", resolve_model(args.model.model)},
        {"draft_model", options.draft_model},
        {"device", llm->device_description()},
        {"draft_acceptance", args.acceptance ? nlohmann::ordered_json(*args.acceptance) : nullptr},
        {"rows", rows}};
    fmt::print("{}\n", report.dump());
    return;
  }
  fmt::print("{}\n{}\n\n", resolve_model(args.model.model), llm->device_description());
  fmt::print("{:>6} {:>12} {:>15} {:>6} {:>8} {:>10} {:>14} {:>14}\n", "batch", "plain tok/s", "guessing tok/s",
             "ratio", "guesses", "came true", "tokens a step", "draft step ms");
  for (const auto& row : rows) {
    const auto number = [&row](const char* name) { return row[name].get<double>(); };
    fmt::print("{:>6} {:>12.1f} {:>15.1f} {:>6.2f} {:>8.0f} {:>9.0f}% {:>14.2f} {:>14.2f}\n", row["batch"].get<int>(),
               number("plain_tok_s"), number("speculated_tok_s"), number("ratio"), number("draft_tokens"),
               100 * number("accepted_tokens") / std::max(number("draft_tokens"), 1.0), number("tokens_per_step"),
               number("draft_step_ms"));
  }
}

}  // namespace ingot::cli
