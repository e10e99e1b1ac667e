#include "text/calls/parser.h"

#include "core/utf8.h"
#include "text/calls/form_parser.h"
#include "text/dialects/dialect.h"

namespace ingot {

std::vector<ChatEvent> ChatParser::feed(std::string_view bytes) {
  bytes_ += bytes;
  size_t at = 0;
  while (at < bytes_.size()) {
    const std::string_view rest = std::string_view(bytes_).substr(at);
    const Utf8Step step = inspect_utf8(rest);
    if (step.status == Utf8Status::incomplete) break;
    buffer_ += step.status == Utf8Status::valid ? rest.substr(0, step.length) : kReplacementUtf8;
    at += step.length;
  }
  bytes_.erase(0, at);
  run_buffer(false);
  return events_.take();
}

std::vector<ChatEvent> ChatParser::finish() {
  if (!bytes_.empty()) buffer_ += kReplacementUtf8;
  run_buffer(true);
  end();
  return events_.take();
}

void ChatParser::run_buffer(bool ended) {
  Input in{.text = buffer_, .at = at_, .kept = kept_, .ended = ended};
  run(in);
  const size_t read = events_.in_call() ? in.at : in.kept;
  buffer_.erase(0, read);
  at_ = in.at - read;
  kept_ = 0;
}

std::unique_ptr<ChatParser> make_chat_parser(const Dialect& dialect, const ChatParserOptions& options) {
  if (dialect.make_parser != nullptr) return dialect.make_parser(options);
  return make_form_parser(dialect, options);
}

void ParsedChat::add(const std::vector<ChatEvent>& events) {
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case ChatEvent::Kind::content: content += event.text; break;
      case ChatEvent::Kind::reasoning: reasoning += event.text; break;
      case ChatEvent::Kind::call_begin: calls.push_back({event.text, event.id, {}, false}); break;
      case ChatEvent::Kind::arguments: calls[static_cast<size_t>(event.index)].arguments += event.text; break;
      case ChatEvent::Kind::call_end: calls[static_cast<size_t>(event.index)].cut = event.cut; break;
    }
  }
}

std::string_view chat_finish_reason(const ChatParser& parser, std::string_view without_calls) {
  if (parser.cut()) return "length";
  return parser.calls() > 0 ? "tool_calls" : without_calls;
}

}  // namespace ingot
