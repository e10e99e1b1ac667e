#include "cli/structured_options.h"

#include "cli/common.h"
#include "cli/options.h"

namespace ingot::cli {

void add_structured_options(Options command, Options group, StructuredArgs& args) {
  group.option("--schema", args.schema, "a file with a JSON Schema").existing_file();
  group.option("--regex", args.regex, "a regular expression");
  group.option("--gbnf", args.gbnf, "a file with a grammar in GBNF").existing_file();
  group.option("--structural-tag", args.structural_tag, "a file with a structural tag").existing_file();
  group.option("--choice", args.choices, "one of several texts; may be given several times").one_value_each();
  command.flag("--strict", args.strict, "with --schema: keys in the order of the schema");
}

StructuredOutput read_structured(const StructuredArgs& args) {
  using Kind = StructuredOutput::Kind;
  StructuredOutput out;
  out.strict = args.strict;
  const auto set = [&out](Kind kind, const char* flag, std::string text) {
    out.kind = kind;
    out.param = flag;
    out.text = std::move(text);
  };
  if (!args.schema.empty()) set(Kind::json_schema, "--schema", read_file(args.schema));
  if (!args.regex.empty()) set(Kind::regex, "--regex", args.regex);
  if (!args.gbnf.empty()) set(Kind::gbnf, "--gbnf", read_file(args.gbnf));
  if (!args.structural_tag.empty()) set(Kind::structural_tag, "--structural-tag", read_file(args.structural_tag));
  if (!args.choices.empty()) set(Kind::choice, "--choice", "");
  out.choices = args.choices;
  return out;
}

}  // namespace ingot::cli
