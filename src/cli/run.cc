#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/common.h"
#include "cli/generate.h"
#include "core/error.h"
#include "core/memory.h"
#include "model/config.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"

namespace ingot::cli {
namespace {

struct RunArgs {
  ModelArgs model;
  PromptArgs prompt;
  SamplingParams sampling;
  std::string system;
  int64_t max_tokens = 128;
  int64_t seed = -1;
  bool chat = false;
  bool ignore_eos = false;
  bool json = false;
};

std::vector<int32_t> chat_ids(const RunArgs& args, const Tokenizer& tokenizer) {
  const std::optional<std::string> source = tokenizer.chat_template();
  if (!source) throw_error(ErrorKind::declined, "--chat: this model has no chat template; leave the flag out");
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!args.system.empty()) messages.push_back({{"role", "system"}, {"content", args.system}});
  messages.push_back({{"role", "user"}, {"content", prompt_text(args.prompt)}});
  const ChatTemplate chat(*source, tokenizer.bos_token(), tokenizer.eos_token());
  return tokenizer.encode(chat.render(messages, {}), {.add_special = false, .parse_special = true});
}

void run(const RunArgs& args) {
  const std::string path = resolve_model(args.model.model);
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(path);
  } catch (const Error& error) {
    // A folder without a tokenizer still serves token ids.
    if (args.prompt.ids.empty() || error.kind() != ErrorKind::declined) throw;
  }
  const std::vector<int32_t> ids =
      args.chat && args.prompt.ids.empty() ? chat_ids(args, *tokenizer) : prompt_ids(args.prompt, tokenizer.get());

  ModelArgs model = args.model;
  model.engine.max_seqs = 1;
  const std::unique_ptr<Engine> engine = load_engine(model);
  SamplingParams sampling = args.sampling;
  sampling.seed = args.seed >= 0 ? static_cast<uint64_t>(args.seed) : std::random_device{}();
  std::vector<int32_t> stop_ids;
  if (!args.ignore_eos) {
    stop_ids = engine->config().eos_ids;
    if (tokenizer) stop_ids.insert(stop_ids.end(), tokenizer->end_ids().begin(), tokenizer->end_ids().end());
  }
  sampling.stop_token_ids = stop_ids;

  std::unique_ptr<Detokenizer> stream;
  if (tokenizer) stream = std::make_unique<Detokenizer>(*tokenizer);
  std::string text;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (args.json || piece.empty()) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  const auto on_token = [&](int32_t token) {
    if (stream)
      emit(stream->push(token));
    else if (!args.json)
      fmt::print("{} ", token);
  };
  const Generation result = generate(*engine, ids, sampling, args.max_tokens, stop_ids, on_token);
  if (stream) emit(stream->finish());

  const size_t produced = result.token_ids.size();
  const double decode_rate = produced > 1 && result.decode_seconds > 0 ? (produced - 1) / result.decode_seconds : 0;
  const double prefill_rate = result.prefill_seconds > 0 ? ids.size() / result.prefill_seconds : 0;
  if (!args.json) {
    fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr, "[{} prompt tokens at {:.0f} tok/s, {} new at {:.0f} tok/s, {}]\n", ids.size(), prefill_rate,
               produced, decode_rate, result.finish_reason);
    return;
  }
  const nlohmann::ordered_json report = {
      {"text", text},
      {"token_ids", result.token_ids},
      {"finish_reason", result.finish_reason},
      {"usage",
       {{"prompt_tokens", ids.size()}, {"completion_tokens", produced}, {"total_tokens", ids.size() + produced}}},
      {"timings",
       {{"prefill_s", result.prefill_seconds},
        {"decode_s", result.decode_seconds},
        {"prefill_tok_s", prefill_rate},
        {"decode_tok_s", decode_rate}}}};
  fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_run(CLI::App& app) {
  auto args = std::make_shared<RunArgs>();
  args->sampling.temperature = 0;
  CLI::App* command = app.add_subcommand("run", "complete one prompt");
  add_engine_options(*command, args->model);
  add_prompt_options(*command, args->prompt);
  command->add_option("-n,--max-tokens", args->max_tokens, "most new tokens")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--chat", args->chat, "put the prompt into the model's chat template");
  command->add_option("--system", args->system, "system message, with --chat");
  SamplingParams& s = args->sampling;
  command->add_option("--temperature", s.temperature, "0: greedy")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-k", s.top_k, "sample from the k most likely; 0: all")->capture_default_str();
  command->add_option("--top-p", s.top_p, "sample from the smallest set with this much probability")
      ->capture_default_str();
  command->add_option("--min-p", s.min_p, "drop tokens below this share of the most likely one")->capture_default_str();
  command->add_option("--presence-penalty", s.presence_penalty, "subtracted for tokens already generated")
      ->capture_default_str();
  command->add_option("--frequency-penalty", s.frequency_penalty, "subtracted per occurrence")->capture_default_str();
  command->add_option("--repetition-penalty", s.repetition_penalty, "above 1: less repetition")->capture_default_str();
  command->add_option("--min-tokens", s.min_tokens, "do not stop before this many tokens")->capture_default_str();
  command->add_option("--seed", args->seed, "the same seed gives the same answer; negative: a random one")
      ->capture_default_str();
  command->add_flag("--ignore-eos", args->ignore_eos, "go on after the end-of-text token");
  command->add_flag("--json", args->json, "print one JSON object instead of the text");
  command->callback([args] { run(*args); });
}

}  // namespace ingot::cli
