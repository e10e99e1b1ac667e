#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/json.h"
#include "text/calls/parser.h"
#include "text/dialects/dialect.h"

namespace ingot::cli {
namespace {

struct ToolsArgs {
  std::string action;
  std::string file;
  std::string format;
  std::string tools;
  uint64_t cut = 0;
  bool in_reasoning = false;
};

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

void parse_answer(const ToolsArgs& args) {
  const Dialect& dialect = find_dialect(args.format);
  ChatParserOptions options{.in_reasoning = args.in_reasoning};
  if (!args.tools.empty()) options.tools = ToolSchemas(parse_ordered_json(read_file(args.tools), args.tools));
  const std::string text = read_file(args.file);

  const std::unique_ptr<ChatParser> parser = make_chat_parser(dialect, options);
  ParsedChat chat;
  const size_t piece = args.cut == 0 ? std::max<size_t>(text.size(), 1) : args.cut;
  for (size_t at = 0; at < text.size(); at += piece) chat.add(parser->feed(std::string_view(text).substr(at, piece)));
  chat.add(parser->finish());

  nlohmann::ordered_json calls = nlohmann::ordered_json::array();
  for (const ParsedCall& call : chat.calls) calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  const nlohmann::ordered_json answer{{"content", text_or_null(chat.content)},
                                      {"reasoning", text_or_null(chat.reasoning)},
                                      {"tool_calls", calls},
                                      {"finish_reason", chat_finish_reason(*parser, "stop")}};
  fmt::print("{}\n", answer.dump());
}

}  // namespace

void add_tools(Program& program) {
  auto [command, args] =
      program.add_command("tools", "what a model's text means: its tool calls and reasoning, as JSON", parse_answer);
  command.option("ACTION", args.action, "parse: take the text apart").required().one_of({"parse"});
  command.option("FILE", args.file, "the text that the model generated; - for the standard input").required();
  command.option("--tool-format", args.format, "how the model writes calls").required().one_of(dialect_names());
  command
      .option("--tools", args.tools,
              "the tools it was offered, a JSON array as in a request: their schemas give values without quotes their "
              "types")
      .existing_file();
  command.option("--cut", args.cut, "feed the text in pieces of so many bytes (0: at once); the result is the same");
  command.flag("--in-reasoning", args.in_reasoning,
               "the text begins within reasoning: the prompt has opened the block");
}

}  // namespace ingot::cli
