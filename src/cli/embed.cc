#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"
#include "ingot/llm.h"
#include "ingot/tokenizer.h"

namespace ingot::cli {
namespace {

struct EmbedArgs {
  ModelArgs model;
  std::vector<std::string> texts;
};

std::vector<std::string> read_texts(const EmbedArgs& args) {
  if (!args.texts.empty()) return args.texts;
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  if (lines.empty())
    throw_error(ErrorKind::bad_call, "there is no text: `ingot embed \"TEXT\" ...`, or one a line on standard input");
  return lines;
}

void embed(const EmbedArgs& args) {
  if (followed_rank_0(args.model)) return;
  const std::vector<std::string> texts = read_texts(args);
  LlmOptions options;
  options.engine = args.model.engine;
  options.engine.model = resolve_model(args.model.model);
  options.max_waiting = static_cast<int32_t>(texts.size());
  const std::unique_ptr<Llm> llm = load_llm(options);
  if (llm->tokenizer() == nullptr) throw_error(ErrorKind::declined, "this model has no tokenizer");
  std::vector<std::shared_ptr<Generation>> running;
  for (const std::string& text : texts) {
    GenerationRequest request;
    request.prompt = llm->tokenizer()->encode(text);
    request.embed = true;
    running.push_back(llm->submit(std::move(request)));
  }
  for (size_t i = 0; i < running.size(); ++i) {
    while (!running[i]->done()) running[i]->wait(std::chrono::milliseconds(1000));
    const std::vector<ChoiceDelta> deltas = running[i]->take();
    if (deltas.empty() || deltas[0].finish != FinishReason::stop)
      throw_error(ErrorKind::device, "text {}: {}", i, running[i]->summary().error);
    fmt::print("{{\"index\":{},\"tokens\":{},\"embedding\":[{}]}}\n", i, running[i]->summary().prompt_tokens,
               fmt::join(deltas[0].embedding, ","));
  }
}

}  // namespace

void add_embed(Program& program) {
  auto [command, args] = program.add_command("embed", "texts as vectors, one line of JSON each", embed);
  add_engine_options(command, args.model);
  add_pooling_options(command, args.model);
  command.option("TEXT", args.texts, "the texts; without one standard input is read, one text a line");
}

}  // namespace ingot::cli
