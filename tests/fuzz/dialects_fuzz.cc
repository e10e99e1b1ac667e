// Any text in any dialect: cut at two places it means what it means whole, every event is sound, and no byte is held
// too long.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "text/calls/parser.h"
#include "text/dialects/dialect.h"

namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]},
    "d": {"type": "object"}, "e": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}}}}])";

struct Answer {
  ingot::ParsedChat chat;
  bool cut = false;
};

void require(bool holds) {
  if (!holds) __builtin_trap();
}

Answer parse(const ingot::Dialect& dialect, const ingot::ChatParserOptions& options, std::string_view text,
             size_t first, size_t second) {
  const auto parser = ingot::make_chat_parser(dialect, options);
  Answer answer;
  int calls = 0;
  bool open = false;
  const auto add = [&](const std::vector<ingot::ChatEvent>& events) {
    using Kind = ingot::ChatEvent::Kind;
    for (const ingot::ChatEvent& event : events) {
      require(ingot::is_valid_utf8(event.text));
      if (event.kind == Kind::content || event.kind == Kind::reasoning) continue;
      require(open == (event.kind != Kind::call_begin));
      if (event.kind == Kind::call_begin) require(event.index == calls++ && !event.text.empty());
      require(event.index == calls - 1);
      open = event.kind != Kind::call_end;
    }
    answer.chat.add(events);
  };
  add(parser->feed(text.substr(0, first)));
  add(parser->feed(text.substr(first, second - first)));
  add(parser->feed(text.substr(second)));
  add(parser->finish());
  require(!open && calls == parser->calls());
  answer.cut = parser->cut();
  return answer;
}

bool same(const Answer& a, const Answer& b) {
  if (a.cut != b.cut || a.chat.content != b.chat.content || a.chat.reasoning != b.chat.reasoning) return false;
  if (a.chat.calls.size() != b.chat.calls.size()) return false;
  for (size_t i = 0; i < a.chat.calls.size(); ++i) {
    const ingot::ParsedCall &x = a.chat.calls[i], &y = b.chat.calls[i];
    if (x.name != y.name || x.id != y.id || x.arguments != y.arguments || x.cut != y.cut) return false;
  }
  return true;
}

}  // namespace

// The first bytes choose: dialect, settings, two cuts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6) return 0;
  static const std::vector<std::string> names = ingot::dialect_names();
  static const ingot::ToolSchemas tools(nlohmann::ordered_json::parse(kTools));
  const ingot::Dialect& dialect = ingot::find_dialect(names[data[0] % names.size()]);
  ingot::ChatParserOptions options{.in_reasoning = (data[1] & 1) != 0};
  if ((data[1] & 2) != 0) options.tools = tools;
  // A detokenizer gives nothing else than UTF-8; the cuts may still fall inside a character.
  const std::string text = ingot::replace_invalid_utf8({reinterpret_cast<const char*>(data + 6), size - 6});
  size_t first = (data[2] | data[3] << 8) % (text.size() + 1);
  size_t second = (data[4] | data[5] << 8) % (text.size() + 1);
  if (first > second) std::swap(first, second);
  require(same(parse(dialect, options, text, 0, 0), parse(dialect, options, text, first, second)));
  return 0;
}
