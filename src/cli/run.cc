#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/chat_input.h"
#include "cli/common.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/sampling_options.h"
#include "core/counted.h"
#include "core/error.h"
#include "ingot/llm.h"
#include "text/chat_template.h"

namespace ingot::cli {
namespace {

struct RunArgs {
  ModelArgs model;
  PromptArgs prompt;
  SamplingArgs sampling;
  std::string system;
  PrefixArgs prefix;
  SpeculationArgs speculation;
  int32_t logprobs = -1;
  bool chat = false;
  bool json = false;
};

std::vector<int32_t> chat_ids(const RunArgs& args, const std::string& question, const Tokenizer& tokenizer) {
  const std::optional<std::string> source = tokenizer.chat_template();
  if (!source) throw_error(ErrorKind::declined, "--chat: this model has no chat template; leave the flag out");
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!args.system.empty()) messages.push_back({{"role", "system"}, {"content", args.system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  const ChatTemplate chat(*source, tokenizer.bos_token(), tokenizer.eos_token());
  return tokenizer.encode(chat.render(messages, {}), {.add_special = false, .parse_special = true});
}

struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenScore> scores;
  FinishReason finish = FinishReason::none;
};

// Reads the generation to its end, showing it as it comes: on a terminal without the control characters that would rule
// it.
Answer read_answer(Generation& generation, bool show, bool as_ids) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  Answer answer;
  ReadingProgress reading;
  while (answer.finish == FinishReason::none) {
    generation.wait(std::chrono::milliseconds(100));
    if (answer.token_ids.empty()) reading.update(generation.summary());
    for (ChoiceDelta& delta : generation.take()) {
      reading.end();
      answer.text += delta.text;
      answer.token_ids.insert(answer.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      answer.scores.insert(answer.scores.end(), delta.scores.begin(), delta.scores.end());
      answer.finish = delta.finish;
      if (!show) continue;
      if (as_ids)
        for (const int32_t id : delta.token_ids) fmt::print("{} ", id);
      const std::string shown = terminal ? printable_text(delta.text) : delta.text;
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
    }
  }
  return answer;
}

nlohmann::ordered_json scores_json(const std::vector<TokenScore>& scores) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TokenScore& score : scores) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const TokenLogprob& other : score.top) top.push_back({{"id", other.token}, {"logprob", other.logprob}});
    list.push_back({{"id", score.token}, {"logprob", score.logprob}, {"rank", score.rank}, {"top", top}});
  }
  return list;
}

void run(const RunArgs& args) {
  if (followed_rank_0(args.model)) return;
  if (!args.system.empty() && !args.chat)
    throw_error(ErrorKind::bad_call, "--system is part of a conversation: give --chat too");
  if (args.logprobs >= 0 && !args.json)
    throw_error(ErrorKind::bad_call, "--logprobs is printed with --json: give that too");
  const Prompt prompt = read_prompt(args.prompt);
  if (args.chat && !prompt.ids.empty())
    throw_error(ErrorKind::bad_call, "--chat needs a text: token ids are taken as they are");
  LlmOptions options;
  options.engine = args.model.engine;
  options.engine.model = args.model.model;
  options.engine.max_seqs = 1;
  args.prefix.apply(options);
  set_speculation(args.speculation, options);
  const std::unique_ptr<Llm> llm = load_llm(options);
  const Tokenizer* tokenizer = llm->tokenizer();
  if (tokenizer == nullptr && prompt.ids.empty())
    throw_error(ErrorKind::declined, "this model has no tokenizer: give the prompt with --ids");

  SamplingArgs sampling = args.sampling;
  take_advice(sampling, llm->model().sampling);
  GenerationRequest request = make_request(sampling);
  request.prompt =
      args.chat && prompt.ids.empty() ? chat_ids(args, prompt.text, *tokenizer) : prompt_ids(prompt, tokenizer);
  request.logprobs = args.logprobs;
  const std::shared_ptr<Generation> generation = llm->submit(std::move(request));
  const Answer answer = read_answer(*generation, !args.json, tokenizer == nullptr);
  const GenerationSummary summary = generation->summary();
  if (answer.finish == FinishReason::error) throw_error(ErrorKind::device, "{}", summary.error);

  const size_t produced = answer.token_ids.size();
  const double decode_rate = produced > 1 && summary.decode_s > 0 ? (produced - 1) / summary.decode_s : 0;
  const double prefill_rate = summary.prefill_s > 0 ? summary.prompt_tokens / summary.prefill_s : 0;
  if (!args.json) {
    fmt::print("\n");
    std::fflush(stdout);
    const std::string guessed = summary.draft_tokens > 0 ? fmt::format(", {} of {} guesses right",
                                                                       summary.accepted_tokens, summary.draft_tokens)
                                                         : "";
    fmt::print(stderr, "[{} at {:.0f} tok/s, {} new at {:.0f} tok/s{}, {}]\n",
               counted(summary.prompt_tokens, "prompt token"), prefill_rate, produced, decode_rate, guessed,
               to_string(answer.finish));
    return;
  }
  nlohmann::ordered_json report = {{"text", answer.text},
                                   {"token_ids", answer.token_ids},
                                   {"finish_reason", to_string(answer.finish)},
                                   {"usage",
                                    {{"prompt_tokens", summary.prompt_tokens},
                                     {"cached_tokens", summary.cached_tokens},
                                     {"completion_tokens", produced},
                                     {"total_tokens", summary.prompt_tokens + static_cast<int64_t>(produced)}}},
                                   {"timings",
                                    {{"prefill_s", summary.prefill_s},
                                     {"decode_s", summary.decode_s},
                                     {"prefill_tok_s", prefill_rate},
                                     {"decode_tok_s", decode_rate},
                                     {"draft_tokens", summary.draft_tokens},
                                     {"accepted_tokens", summary.accepted_tokens}}}};
  if (args.logprobs >= 0) report["logprobs"] = scores_json(answer.scores);
  fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_run(Program& program) {
  auto [command, args] = program.add_command("run", "complete one prompt", run);
  add_engine_options(command, args.model);
  add_prompt_options(command, args.prompt);
  command.flag("--chat", args.chat, "put the prompt into the model's chat template");
  command.option("--system", args.system, "system message, with --chat");
  add_sampling_options(command, args.sampling);
  add_prefix_options(command, args.prefix);
  add_speculation_options(command, args.speculation);
  command.option("--logprobs", args.logprobs, "with --json: logprobs of each token and of the k most likely")
      .non_negative();
  command.flag("--json", args.json, "print one JSON object instead of the text");
}

}  // namespace ingot::cli
