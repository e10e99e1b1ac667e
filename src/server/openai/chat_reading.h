#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ingot/llm.h"
#include "text/chat_format.h"

namespace ingot::server::openai {

// How the text of an answer is taken apart into content, reasoning and calls.
struct ChatReading {
  std::shared_ptr<const ChatFormat> format;
  ChatParserOptions options;
  bool parallel_calls = true;     // otherwise only the first is handed on
  bool include_reasoning = true;  // otherwise reasoning is left out
};

// The text of one choice, as it comes. Calls without an id of the model's own get one.
class ChoiceReader {
 public:
  explicit ChoiceReader(const ChatReading& reading);

  std::vector<ChatEvent> read(const ChoiceDelta& delta);
  // "tool_calls" where the model ended with calls, "length" where the text ended within one, else `otherwise`: what
  // ended the text. After the last delta.
  std::string finish_reason(std::string otherwise) const;

 private:
  const ChatReading& reading_;
  std::unique_ptr<ChatParser> parser_;
  std::set<std::string> ids_;  // of the calls so far
};

}  // namespace ingot::server::openai
