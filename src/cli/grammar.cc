#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/options.h"
#include "cli/structured_options.h"
#include "core/error.h"
#include "grammar/matcher.h"
#include "grammar/tokenizer_vocabulary.h"

namespace ingot::cli {
namespace {

struct GrammarArgs {
  ModelArgs model;
  std::string action;
  StructuredArgs structured;
  std::vector<std::string> files;
  bool json = false;
};

double elapsed_us(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - since).count();
}

std::shared_ptr<grammar::Grammar> compile(const StructuredArgs& args,
                                          std::shared_ptr<const grammar::Vocabulary> vocabulary) {
  using grammar::Grammar;
  const grammar::Options options{.strict = args.strict};
  if (!args.schema.empty()) return Grammar::json_schema(std::move(vocabulary), read_file(args.schema), options);
  if (!args.gbnf.empty()) return Grammar::gbnf(std::move(vocabulary), read_file(args.gbnf), options);
  if (!args.structural_tag.empty())
    return Grammar::structural_tag(std::move(vocabulary), read_file(args.structural_tag), options);
  if (!args.choices.empty()) return Grammar::choice(std::move(vocabulary), args.choices, options);
  return Grammar::regex(std::move(vocabulary), args.regex, options);
}

struct Verdict {
  bool accepts = true;
  size_t at = 0;                // the first byte that may not be there
  std::vector<double> mask_us;  // one a token
};

// Feeds a text as a model would write it: a mask, then a token.
Verdict check(const std::shared_ptr<grammar::Grammar>& compiled, const Tokenizer& tokenizer, const std::string& text) {
  const grammar::Vocabulary& vocabulary = compiled->vocabulary();
  grammar::Matcher matcher(compiled);
  std::vector<uint32_t> bits(vocabulary.mask_words());
  Verdict verdict;
  for (const int32_t token : tokenizer.encode(text, {.add_special = false, .parse_special = false})) {
    const auto start = std::chrono::steady_clock::now();
    matcher.fill_mask(bits);
    verdict.mask_us.push_back(elapsed_us(start));
    const bool allowed = (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
    const std::string& bytes = vocabulary.bytes(token);
    const size_t taken = matcher.accept_bytes(bytes);
    if (allowed != (taken == bytes.size()))
      throw_error(ErrorKind::internal, "the mask and the matcher disagree about token {}", token);
    verdict.at += taken;
    if (taken == bytes.size()) continue;
    verdict.accepts = false;
    return verdict;
  }
  verdict.accepts = matcher.is_complete();
  return verdict;
}

void run_grammar(const GrammarArgs& args) {
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(resolve_model(args.model.model));
  auto vocabulary = grammar::make_vocabulary(*tokenizer);
  const auto start = std::chrono::steady_clock::now();
  const auto compiled = compile(args.structured, std::move(vocabulary));
  const double compile_ms = elapsed_us(start) / 1e3;
  for (const std::string& file : args.files) {
    std::string text = read_file(file);
    if (text.ends_with('\n')) text.pop_back();  // of the file, not of the text
    Verdict verdict = check(compiled, *tokenizer, text);
    if (!args.json) {
      fmt::print("{}\n", verdict.accepts ? "accepts" : fmt::format("rejects at byte {}", verdict.at));
      continue;
    }
    std::ranges::sort(verdict.mask_us);
    const auto percentile = [&](size_t percent) {
      const size_t count = verdict.mask_us.size();
      return count == 0 ? 0.0 : verdict.mask_us[std::min(count - 1, count * percent / 100)];
    };
    const nlohmann::ordered_json report = {
        {"accepts", verdict.accepts},
        {"at", verdict.accepts ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(verdict.at)},
        {"compile_ms", compile_ms},
        {"mask_us_p50", percentile(50)},
        {"mask_us_p99", percentile(99)}};
    fmt::print("{}\n", report.dump());
  }
}

}  // namespace

void add_grammar(Program& program) {
  auto [command, args] =
      program.add_command("grammar", "`ingot grammar check`: whether texts fit a grammar", run_grammar);
  command.option("ACTION", args.action, "check").required().one_of({"check"});
  add_engine_options(command, args.model);  // the same flags everywhere, though no engine is loaded here
  add_structured_options(command, command.exactly_one("Grammar", "exactly one of these"), args.structured);
  command.flag("--json", args.json, "one JSON object a file, with times");
  command.option("FILE", args.files, "texts to check").required();
}

}  // namespace ingot::cli
