#include "grammar/grammar.h"

#include <utility>

#include "core/utf8.h"
#include "grammar/frame.h"
#include "grammar/gbnf.h"
#include "grammar/machine.h"
#include "grammar/regex.h"
#include "grammar/schema/schema.h"
#include "grammar/structural_tag.h"

namespace ingot::grammar {
namespace {

// Without what only lasts until the call is over.
Options lasting(Options options) {
  options.cancelled = nullptr;
  return options;
}

RuleId rule_of(Program& program, ExprId expr) {
  const RuleId rule = program.rules.add_rule();
  const StateId begin = program.rules.add_state(rule), end = program.rules.add_state(rule, true);
  program.rules.set_start(rule, begin);
  program.add_expr(begin, expr, end);
  return rule;
}

}  // namespace

Grammar::Grammar(Vocab vocabulary, Build build, const Options& options)
    : vocabulary_(std::move(vocabulary)), build_(std::move(build)), limits_(options.limits) {}

Grammar::~Grammar() = default;

std::shared_ptr<Grammar> Grammar::make(Vocab vocabulary, Build build, const Options& options) {
  Build framed = [build = std::move(build), options = lasting(options)](Program& program) {
    return compile_frame(program, options, build(program));
  };
  std::shared_ptr<Grammar> made(new Grammar(std::move(vocabulary), std::move(framed), options));
  made->machine_ = made->build_machine(options.cancelled);
  return made;
}

std::shared_ptr<Machine> Grammar::build_machine(const CancelFlag* cancelled) const {
  auto machine = std::make_shared<Machine>(limits_, *vocabulary_, build_, cancelled);
  const Configuration* first = machine->automaton.first();
  if (first->threads.empty() && !first->complete)
    throw_error(ErrorKind::bad_call, "the grammar matches no text at all");
  return machine;
}

std::shared_ptr<Machine> Grammar::machine() const {
  const std::lock_guard lock(mutex_);
  return machine_;
}

std::shared_ptr<Machine> Grammar::renew(const std::shared_ptr<Machine>& full) {
  const std::lock_guard lock(mutex_);
  if (machine_ == full) machine_ = build_machine(nullptr);
  return machine_;
}

size_t Grammar::bytes() const { return machine()->bytes(); }
void Grammar::forget() { machine()->retired = true; }

std::shared_ptr<Grammar> Grammar::json_schema(Vocab vocabulary, std::string schema, const Options& options) {
  return make(
      std::move(vocabulary),
      [schema = std::move(schema), options = lasting(options)](Program& program) {
        return compile_schema(program, schema, options);
      },
      options);
}

std::shared_ptr<Grammar> Grammar::any_json(Vocab vocabulary, const Options& options) {
  return json_schema(std::move(vocabulary), R"({"type":"object"})", options);
}

std::shared_ptr<Grammar> Grammar::regex(Vocab vocabulary, std::string pattern, const Options& options) {
  return make(
      std::move(vocabulary),
      [pattern = std::move(pattern)](Program& program) {
        return rule_of(program, parse_regex(program.text, pattern, RegexMatch::whole, "regex"));
      },
      options);
}

std::shared_ptr<Grammar> Grammar::choice(Vocab vocabulary, std::vector<std::string> texts, const Options& options) {
  if (texts.empty()) throw_bad_parameter("choice", "must name at least one text");
  for (const std::string& text : texts)
    if (!is_valid_utf8(text)) throw_bad_parameter("choice", "must be valid UTF-8");
  return make(
      std::move(vocabulary),
      [texts = std::move(texts)](Program& program) { return rule_of(program, program.pool.literals(texts)); }, options);
}

std::shared_ptr<Grammar> Grammar::gbnf(Vocab vocabulary, std::string source, const Options& options) {
  return make(
      std::move(vocabulary), [source = std::move(source)](Program& program) { return compile_gbnf(program, source); },
      options);
}

std::shared_ptr<Grammar> Grammar::free_text(Vocab vocabulary, const Options& options) {
  return make(
      std::move(vocabulary), [frame = options.frame](Program& program) { return compile_free_text(program, frame); },
      options);
}

std::shared_ptr<Grammar> Grammar::structural_tag(Vocab vocabulary, std::string tag, const Options& options) {
  return make(
      std::move(vocabulary),
      [tag = std::move(tag), options = lasting(options)](Program& program) {
        return compile_structural_tag(program, tag, options);
      },
      options);
}

}  // namespace ingot::grammar
