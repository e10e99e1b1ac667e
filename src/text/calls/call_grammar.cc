#include "text/calls/call_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/calls/form_reader.h"

namespace ingot {
namespace {

using ToolJson = nlohmann::ordered_json;

constexpr std::string_view kName = "NAME";  // stands for the function's

const Form& form_of(const Dialect& dialect, std::string_view template_source) {
  for (const Form& form : dialect.forms)
    if (!form.template_mark.empty() && template_source.find(form.template_mark) != template_source.npos) return form;
  for (const Form& form : dialect.forms)
    if (form.template_mark.empty()) return form;
  return dialect.forms.front();
}

// What is written around the arguments of one call.
struct Frame {
  std::string before, behind;
};

Frame frame_of(const Dialect& dialect, const Form& form, CallGrammar& grammar) {
  using Kind = Piece::Kind;
  Frame frame;
  std::string* out = &frame.before;
  for (const Piece& piece : form.pieces) {
    switch (piece.kind) {
      case Kind::text:
      case Kind::maybe:
      case Kind::space: *out += piece.text; break;
      case Kind::name: *out += kName; break;
      case Kind::id: break;
      case Kind::named_id: *out += "functions." + std::string(kName) + ":0"; break;
      case Kind::fields:
        grammar.arguments = CallGrammar::Arguments::fields;
        grammar.fields = dialect.fields;
        [[fallthrough]];
      case Kind::arguments: out = &frame.behind; break;
      case Kind::call:
      case Kind::calls:
      case Kind::python:
        if (piece.kind != Kind::call) {  // what came before is around the list, not around each call
          grammar.open += std::exchange(frame.before, {}) + "[";
          grammar.separator = ", ";
          grammar.close = "]";
        }
        if (piece.kind == Kind::python) {
          grammar.arguments = CallGrammar::Arguments::python;
          frame = {std::string(kName) + "(", ")"};
        } else {
          frame.before += "{\"name\": \"" + std::string(kName) + "\", \"" + std::string(dialect.arguments_key) + "\": ";
          frame.behind = "}";
        }
        out = piece.kind == Kind::call ? &frame.behind : &grammar.close;
        break;
    }
  }
  return frame;
}

std::string with_name(std::string text, std::string_view name) {
  const size_t at = text.find(kName);
  if (at != text.npos) text.replace(at, kName.size(), name);
  return text;
}

const ToolJson* member_of(const ToolJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

CallGrammar make_call_grammar(const Dialect& dialect, std::string_view template_source, const ToolJson& tools) {
  CallGrammar grammar;
  grammar.open = dialect.section_open;
  grammar.separator = dialect.separator;
  Frame frame{std::string(dialect.call_open), std::string(dialect.call_close)};
  if (!dialect.forms.empty()) frame = frame_of(dialect, form_of(dialect, template_source), grammar);
  grammar.close += dialect.section_close;
  const std::string first = grammar.open + frame.before;
  if (!dialect.section_open.empty()) grammar.triggers.emplace_back(dialect.section_open);
  for (const Form& form : dialect.forms)
    for (std::string& opening : form_openings(form))
      if (opening.size() > 1) grammar.triggers.push_back(std::move(opening));  // a bracket alone is ordinary text
  const auto begins = [&](const std::string& trigger) { return first.starts_with(trigger); };
  const bool marked = std::any_of(grammar.triggers.begin(), grammar.triggers.end(), begins);
  if (!marked && grammar.arguments != CallGrammar::Arguments::python)
    grammar.triggers.push_back(first.substr(0, first.find(kName)));
  for (const ToolJson& tool : tools) {
    const ToolJson* inner = member_of(tool, "function");
    const ToolJson& function = inner != nullptr ? *inner : tool;
    const std::string name = function.at("name");
    const ToolJson* schema = member_of(function, "parameters");
    const ToolJson* strict = member_of(function, "strict");
    grammar.tags.push_back({.name = name,
                            .begin = with_name(frame.before, name),
                            .end = with_name(frame.behind, name),
                            .schema = schema != nullptr ? schema : member_of(function, "input_schema"),
                            .strict = strict != nullptr && *strict == true});
    if (!marked && grammar.arguments == CallGrammar::Arguments::python)
      grammar.triggers.push_back(grammar.open + grammar.tags.back().begin);
  }
  return grammar;
}

}  // namespace ingot
