#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/calls/events.h"
#include "text/calls/input.h"
#include "text/calls/tool_schemas.h"

namespace ingot {

struct Dialect;

struct ChatParserOptions {
  ToolSchemas tools{};
  bool calls = true;          // otherwise calls are content
  bool reasoning = true;      // otherwise reasoning is content
  bool in_reasoning = false;  // the prompt has opened the block: the text begins in it
};

// Takes a model's answer apart as it comes: content, reasoning, calls. What comes out does not depend on where the text
// was cut; time and memory are linear in it, and what is held back is bounded.
class ChatParser {
 public:
  ChatParser() = default;
  virtual ~ChatParser() = default;
  ChatParser(const ChatParser&) = delete;
  ChatParser& operator=(const ChatParser&) = delete;

  // Any bytes: a character may be cut, and what is not UTF-8 becomes U+FFFD.
  std::vector<ChatEvent> feed(std::string_view bytes);
  std::vector<ChatEvent> finish();  // the text has ended

  int calls() const { return events_.calls(); }
  // Whether the text ended within a call. Known after finish().
  bool cut() const { return cut_; }

 protected:
  // Reads what it can of `in`.
  virtual void run(Input& in) = 0;
  virtual void end() = 0;  // behind the last run(), which saw in.ended

  EventWriter events_;
  bool cut_ = false;

 private:
  void run_buffer(bool ended);

  std::string bytes_;   // of a character that is not whole
  std::string buffer_;  // not read, or read and held
  size_t at_ = 0, kept_ = 0;
};

std::unique_ptr<ChatParser> make_chat_parser(const Dialect& dialect, const ChatParserOptions& options);

// A whole answer, put together.
struct ParsedCall {
  std::string name, id, arguments;
  bool cut = false;
};
struct ParsedChat {
  std::string content, reasoning;
  std::vector<ParsedCall> calls;

  void add(const std::vector<ChatEvent>& events);
};

// Why an answer ended: "tool_calls" where calls are whole, "length" where the text ended within one.
std::string_view chat_finish_reason(const ChatParser& parser, std::string_view without_calls);

}  // namespace ingot
