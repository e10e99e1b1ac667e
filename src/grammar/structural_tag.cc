#include "grammar/structural_tag.h"

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "grammar/schema/schema.h"

namespace ingot::grammar {
namespace {

using TagJson = nlohmann::ordered_json;

const std::string& string_at(const TagJson& value, const char* key, const std::string& place) {
  const auto found = value.is_object() ? value.find(key) : value.end();
  if (!value.is_object() || found == value.end() || !found->is_string())
    throw_bad_parameter(place + "/" + key, "must be a text");
  return found->get_ref<const std::string&>();
}

const TagJson& list_at(const TagJson& value, const char* key) {
  const auto found = value.is_object() ? value.find(key) : value.end();
  if (!value.is_object() || found == value.end() || !found->is_array() || found->empty())
    throw_bad_parameter(std::string("#/") + key, "must be a list of at least one");
  return *found;
}

}  // namespace

RuleId compile_structural_tag(Program& program, std::string_view text, const Options& options) {
  TagJson tag;
  try {
    tag = parse_ordered_json(text, "structural tag", {.max_bytes = options.limits.max_source_bytes, .max_depth = 128});
  } catch (const JsonError& error) {
    throw_bad_parameter("#", "{}", error.reason());
  }
  ExprPool& pool = program.pool;
  Rules& rules = program.rules;
  const RuleId rule = rules.add_rule();
  const StateId start = rules.add_state(rule, true);
  rules.set_start(rule, start);

  // Free text has no trigger in it: where one appears, its structure has begun.
  std::vector<std::string> triggers;
  std::vector<ExprId> contain;
  const ExprId any = program.text.any_text();
  const TagJson& trigger_list = list_at(tag, "triggers");
  for (size_t i = 0; i < trigger_list.size(); ++i) {
    if (!trigger_list[i].is_string() || trigger_list[i].get_ref<const std::string&>().empty())
      throw_bad_parameter(fmt::format("#/triggers/{}", i), "must be a text");
    triggers.push_back(trigger_list[i].get<std::string>());
    contain.push_back(pool.concat({any, pool.literal(triggers.back()), any}));
  }
  const StateId after_text = rules.add_state(rule, true);
  program.add_expr(start, pool.without(any, pool.either(std::move(contain))), after_text);

  const TagJson& structures = list_at(tag, "structures");
  for (size_t i = 0; i < structures.size(); ++i) {
    const std::string place = fmt::format("#/structures/{}", i);
    const std::string& begin = string_at(structures[i], "begin", place);
    const std::string& end = string_at(structures[i], "end", place);
    bool triggered = false;
    for (const std::string& trigger : triggers) triggered = triggered || begin.starts_with(trigger);
    if (!triggered) throw_bad_parameter(place + "/begin", "starts with none of the triggers");
    const auto schema = structures[i].find("schema");
    if (schema == structures[i].end()) throw_bad_parameter(place + "/schema", "is missing");
    const RuleId value = compile_schema(program, schema->dump(), options, place + "/schema");
    const StateId opened = rules.add_state(rule), filled = rules.add_state(rule);
    program.add_expr(after_text, program.literal_with_specials(begin), opened);
    rules.add_call(opened, value, filled);
    program.add_expr(filled, program.literal_with_specials(end), start);
  }
  return rule;
}

}  // namespace ingot::grammar
