#include "grammar/structural_tag.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/json.h"
#include "grammar/frame.h"
#include "grammar/schema/schema.h"

namespace ingot::grammar {
namespace {

using TagJson = nlohmann::ordered_json;

const TagJson* member(const TagJson& value, const char* key) {
  const auto found = value.is_object() ? value.find(key) : value.end();
  return !value.is_object() || found == value.end() || found->is_null() ? nullptr : &*found;
}

const std::string& string_at(const TagJson& value, const char* key, const std::string& place) {
  const TagJson* found = member(value, key);
  if (found == nullptr || !found->is_string()) throw_bad_parameter(place + "/" + key, "must be a text");
  return found->get_ref<const std::string&>();
}

std::string string_or_empty(const TagJson& value, const char* key, const std::string& place) {
  return member(value, key) == nullptr ? std::string() : string_at(value, key, place);
}

const TagJson& list_at(const TagJson& value, const char* key) {
  const TagJson* found = member(value, key);
  if (found == nullptr || !found->is_array() || found->empty())
    throw_bad_parameter(std::string("#/") + key, "must be a list of at least one");
  return *found;
}

bool flag_at(const TagJson& value, const char* key, const std::string& place) {
  const TagJson* found = member(value, key);
  if (found != nullptr && !found->is_boolean()) throw_bad_parameter(place + "/" + key, "must be true or false");
  return found != nullptr && found->get<bool>();
}

// Whether a value may be a string, which stands without quotes between marks.
bool may_be_string(const TagJson& schema) {
  const auto says = [](const TagJson& type) { return type == "string"; };
  if (const TagJson* type = member(schema, "type"))
    return type->is_array() ? std::any_of(type->begin(), type->end(), says) : says(*type);
  if (const TagJson* values = member(schema, "enum"); values != nullptr && values->is_array())
    return std::any_of(values->begin(), values->end(), [](const TagJson& value) { return value.is_string(); });
  for (const char* choice : {"anyOf", "oneOf"})
    if (const TagJson* parts = member(schema, choice); parts != nullptr && parts->is_array())
      return std::any_of(parts->begin(), parts->end(), may_be_string);
  return member(schema, "properties") == nullptr && member(schema, "$ref") == nullptr;
}

// The properties of an object between marks instead of as JSON: in the order of the schema, optional ones perhaps not.
class FieldsCompiler {
 public:
  FieldsCompiler(Program& program, const TagJson& marks, const Options& options, std::string place)
      : program_(program), options_(options), place_(std::move(place)) {
    for (const auto& [text, key] : {std::pair{&key_open_, "key_open"},
                                    {&key_close_, "key_close"},
                                    {&value_close_, "value_close"},
                                    {&separator_, "separator"}})
      *text = string_or_empty(marks, key, place_ + "/fields");
    json_ = flag_at(marks, "json", place_ + "/fields");
    if (const TagJson* list = member(marks, "never"); list != nullptr && list->is_array())
      for (const TagJson& mark : *list)
        if (mark.is_string() && mark != "") never_.push_back(mark.get<std::string>());
    if (never_.empty()) never_.push_back(value_close_);
  }

  RuleId compile(const TagJson& schema) {
    Rules& rules = program_.rules;
    const RuleId rule = rules.add_rule();
    StateId none = rules.add_state(rule);  // no field yet
    rules.set_start(rule, none);
    std::optional<StateId> some;  // behind a field
    const TagJson* properties = member(schema, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& property : properties->get_ref<const TagJson::object_t&>()) {
        const StateId behind = rules.add_state(rule);
        add_field(rule, none, behind, property.first, property.second, schema, "");
        if (some) add_field(rule, *some, behind, property.first, property.second, schema, separator_);
        if (!is_required(schema, property.first)) {
          if (some) rules.add_skip(*some, behind);
          const StateId next_none = rules.add_state(rule);
          rules.add_skip(none, next_none);
          none = next_none;
        } else {
          none = rules.add_state(rule);  // reached by nothing
        }
        some = behind;
      }
    }
    rules.set_final(none);
    if (some) rules.set_final(*some);
    return rule;
  }

 private:
  static bool is_required(const TagJson& schema, const std::string& name) {
    const TagJson* required = member(schema, "required");
    return required != nullptr && required->is_array() &&
           std::find(required->begin(), required->end(), TagJson(name)) != required->end();
  }

  void add_field(RuleId rule, StateId from, StateId to, const std::string& name, const TagJson& schema,
                 const TagJson& root, const std::string& before) {
    Rules& rules = program_.rules;
    const StateId opened = rules.add_state(rule), filled = rules.add_state(rule);
    program_.add_expr(from, program_.literal_with_specials(before + key_open_ + name + key_close_), opened);
    program_.add_expr(filled, program_.literal_with_specials(value_close_), to);
    const TagJson* values = member(schema, "enum");
    if (json_ || !may_be_string(schema)) {
      TagJson whole = schema;
      for (const char* key : {"$defs", "definitions"})
        if (const TagJson* shared = member(root, key); shared != nullptr && whole.is_object()) whole[key] = *shared;
      rules.add_call(opened, compile_schema(program_, whole.dump(), options_, place_ + "/schema/properties/" + name),
                     filled);
    } else if (values != nullptr && values->is_array()) {
      std::vector<std::string> texts;
      for (const TagJson& value : *values) texts.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      program_.add_expr(opened, program_.pool.literals(std::move(texts)), filled);
    } else {
      program_.add_expr(opened, text_without(program_, program_.text.any_text(), never_), filled);
    }
  }

  Program& program_;
  const Options& options_;
  const std::string place_;
  std::string key_open_, key_close_, value_close_, separator_;
  std::vector<std::string> never_;  // not in a value's text, which would end there
  bool json_ = false;               // strings too are JSON
};

AnswerFrame::Reasoning read_reasoning(const TagJson& reasoning) {
  const std::string place = "#/reasoning";
  AnswerFrame::Reasoning read{.open = string_or_empty(reasoning, "open", place),
                              .close = string_at(reasoning, "close", place),
                              .inside = flag_at(reasoning, "inside", place),
                              .never = {}};
  if (read.close.empty()) throw_bad_parameter(place + "/close", "may not be empty");
  if (!read.inside && read.open.empty()) throw_bad_parameter(place + "/open", "must be a text");
  return read;
}

}  // namespace

RuleId compile_structural_tag(Program& program, std::string_view text, const Options& options) {
  TagJson tag;
  try {
    tag = parse_ordered_json(text, "structural tag", {.max_bytes = options.limits.max_source_bytes, .max_depth = 128});
  } catch (const JsonError& error) {
    throw_bad_parameter("#", "{}", error.reason());
  }
  Rules& rules = program.rules;
  const RuleId rule = rules.add_rule();
  const bool required = flag_at(tag, "required", "#");
  const StateId start = rules.add_state(rule, !required);
  rules.set_start(rule, start);
  const StateId before = rules.add_state(rule, !required);  // a structure may begin
  const StateId behind = required ? rules.add_state(rule) : start;

  // Free text has no trigger in it: where one appears, its structure has begun.
  std::vector<std::string> triggers;
  if (!required) {
    const TagJson& trigger_list = list_at(tag, "triggers");
    for (size_t i = 0; i < trigger_list.size(); ++i) {
      if (!trigger_list[i].is_string() || trigger_list[i].get_ref<const std::string&>().empty())
        throw_bad_parameter(fmt::format("#/triggers/{}", i), "must be a text");
      triggers.push_back(trigger_list[i].get<std::string>());
    }
    program.add_expr(start, text_without(program, program.text.any_text(), triggers), before);
  } else {
    const auto add = [&](StateId from, const char* key, StateId to) {
      program.add_expr(from, program.literal_with_specials(string_or_empty(tag, key, "#")), to);
    };
    const StateId ready = rules.add_state(rule);
    const TagJson* reasoning = member(tag, "reasoning");
    if (reasoning != nullptr)
      add_reasoning(program, rule, start, ready, read_reasoning(*reasoning));
    else
      rules.add_skip(start, ready);
    add(ready, "open", before);
    if (!flag_at(tag, "once", "#")) add(behind, "separator", before);
    add(behind, "close", rules.add_state(rule, true));
  }

  const TagJson& structures = list_at(tag, "structures");
  for (size_t i = 0; i < structures.size(); ++i) {
    const std::string place = fmt::format("#/structures/{}", i);
    const std::string& begin = string_at(structures[i], "begin", place);
    const std::string& end = string_at(structures[i], "end", place);
    bool triggered = required;
    for (const std::string& trigger : triggers) triggered = triggered || begin.starts_with(trigger);
    if (!triggered) throw_bad_parameter(place + "/begin", "starts with none of the triggers");
    const auto schema = structures[i].find("schema");
    if (schema == structures[i].end()) throw_bad_parameter(place + "/schema", "is missing");
    const TagJson* fields = member(structures[i], "fields");
    const RuleId value = fields != nullptr ? FieldsCompiler(program, *fields, options, place).compile(*schema)
                                           : compile_schema(program, schema->dump(), options, place + "/schema");
    const StateId opened = rules.add_state(rule), filled = rules.add_state(rule);
    program.add_expr(before, program.literal_with_specials(begin), opened);
    rules.add_call(opened, value, filled);
    program.add_expr(filled, program.literal_with_specials(end), behind);
  }
  return rule;
}

}  // namespace ingot::grammar
