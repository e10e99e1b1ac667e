#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/common.h"
#include "cli/options.h"
#include "ingot/tokenizer.h"

namespace ingot::cli {
namespace {

struct TokenizeArgs {
  ModelArgs model;
  PromptArgs prompt;
  bool special = false;
};

void tokenize(const TokenizeArgs& args) {
  const Prompt prompt = read_prompt(args.prompt);
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(resolve_model(args.model.model));
  if (!prompt.ids.empty()) {  // the way back
    fmt::print("{}\n", tokenizer->decode(prompt.ids, false));
    return;
  }
  const auto ids = tokenizer->encode(prompt.text, {.add_special = false, .parse_special = args.special});
  fmt::print("[{}]\n", fmt::join(ids, ", "));
}

}  // namespace

void add_tokenize(Program& program) {
  auto [command, args] = program.add_command("tokenize", "text to token ids (or --ids back to text)", tokenize);
  add_model_options(command, args.model);
  command.heading("");  // the same flags everywhere, though no engine is loaded here
  add_device_options(command, args.model);
  command.heading(nullptr);
  add_prompt_options(command, args.prompt);
  command.flag("--special", args.special, "special tokens written in the text become that token");
}

}  // namespace ingot::cli
