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
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(resolve_model(args.model.model));
  if (!args.prompt.ids.empty()) {  // the way back
    fmt::print("{}\n", tokenizer->decode(args.prompt.ids, false));
    return;
  }
  const auto ids = tokenizer->encode(prompt_text(args.prompt), {.add_special = false, .parse_special = args.special});
  fmt::print("[{}]\n", fmt::join(ids, ", "));
}

}  // namespace

void add_tokenize(Program& program) {
  auto [command, args] = program.add_command("tokenize", "text to token ids (or --ids back to text)", tokenize);
  add_engine_options(command, args.model);  // the same flags everywhere, though no engine is loaded here
  add_prompt_options(command, args.prompt);
  command.flag("--special", args.special, "special tokens written in the text become that token");
}

}  // namespace ingot::cli
