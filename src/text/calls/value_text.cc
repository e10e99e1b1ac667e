#include "text/calls/value_text.h"

#include <nlohmann/json.hpp>

#include "core/ascii.h"
#include "text/calls/json_scanner.h"
#include "text/calls/python_literal.h"

namespace ingot {
namespace {

bool fits(const std::string& json, const ValueKinds& kinds) {
  const char c = json.front();
  if (c == '"') return kinds.string;
  if (c == '{' || c == '[') return kinds.structure;
  if (c == 't' || c == 'f') return kinds.boolean;
  if (c == 'n') return kinds.null;
  return kinds.number;
}

// All of `text` as one value.
template <typename Reader>
std::string read_whole(std::string_view text) {
  Input in{.text = text, .ended = true};
  std::string json;
  Reader reader;
  return reader.read(in, json) == Read::done && in.empty() ? json : std::string();
}

}  // namespace

std::string value_as_json(std::string_view text, const ValueKinds& kinds) {
  const std::string_view bare = strip_space(text);
  if (kinds.null && bare == "null") return "null";
  if (!kinds.string && !bare.empty()) {
    std::string json = read_whole<JsonScanner>(bare);
    if (json.empty()) json = read_whole<PythonLiteral>(bare);
    if (json.empty() && kinds.boolean) json = read_whole<JsonScanner>(ascii_lower(bare));
    if (!json.empty() && fits(json, kinds)) return json;
  }
  std::string json = "\"";
  append_json_escaped(json, text);
  return json + '"';
}

void ValueText::add(std::string_view text, std::string& json) {
  if (first_ && !text.empty()) {
    if (lines_ && text.front() == '\n') text.remove_prefix(1);
    first_ = false;
  }
  if (quoted_) return add_string(text, json);
  held_ += text;
  if (!kinds_.string) return;
  const std::string_view bare = strip_space(held_);
  if (kinds_.null && std::string_view("null").starts_with(bare) && held_.size() < 16) return;  // may still be null
  quoted_ = true;
  json.push_back('"');
  std::string held;
  held.swap(held_);
  add_string(held, json);
}

void ValueText::add_string(std::string_view text, std::string& json) {
  if (text.empty()) return;
  append_json_escaped(json, held_);
  held_.clear();
  if (lines_ && text.back() == '\n') {  // perhaps the last
    held_ = "\n";
    text.remove_suffix(1);
  }
  append_json_escaped(json, text);
}

void ValueText::finish(std::string& json) {
  if (quoted_) {
    json.push_back('"');  // the line break that is held belongs to the mark
    return;
  }
  std::string_view text = held_;
  if (lines_ && text.ends_with('\n')) text.remove_suffix(1);
  json += value_as_json(text, kinds_);
}

void ValueText::cut(std::string& json) const {
  if (!quoted_) json += strip_space(held_);
}

}  // namespace ingot
