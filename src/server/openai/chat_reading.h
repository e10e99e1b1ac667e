#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ingot/llm.h"
#include "text/chat_format.h"

namespace ingot::server::openai {

// "stop", "length" or "abort": what OpenAI calls the end of a text.
const char* finish_word(FinishReason reason);

// How the text of an answer is taken apart into content, reasoning and calls.
struct ChatReading {
  std::shared_ptr<const ChatFormat> format;
  ChatParserOptions options;
  bool parallel_calls = true;     // otherwise only the first is handed on
  bool include_reasoning = true;  // otherwise reasoning is left out
};

// The text of one choice, as it comes. Calls without an id of the model's own get one; their ends are left out.
class ChoiceReader {
 public:
  // `reading` must outlive it; none: the text is content.
  explicit ChoiceReader(const std::optional<ChatReading>& reading);

  std::vector<ChatEvent> read(const ChoiceDelta& delta);
  // Why the choice ended: "stop", "length", "abort"; "tool_calls" where the model ended with calls, "length" where the
  // text ended within one. After the last delta.
  std::string finish_reason(FinishReason finish) const;

 private:
  const ChatReading* const reading_;  // null, and no parser: the text is content
  std::unique_ptr<ChatParser> parser_;
  std::set<std::string> ids_;  // of the calls so far
};

}  // namespace ingot::server::openai
