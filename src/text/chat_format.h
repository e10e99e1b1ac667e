#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "text/calls/parser.h"
#include "text/chat_template.h"

namespace ingot {

struct Dialect;
struct ReasoningBlock;
class Tokenizer;

// How one model is talked to: its chat template, and the dialect in which it answers. Can be used by several threads at
// once.
class ChatFormat {
 public:
  // `tool_format` names a dialect; empty: the template's own. Throws what ChatTemplate and find_dialect() throw.
  ChatFormat(std::string source, std::string bos_token, std::string eos_token, std::string_view tool_format = {});

  struct Prompt {
    std::string text;
    bool in_reasoning = false;  // it ends in what opens the model's reasoning
  };
  // As ChatTemplate::render(), for conversations with tools too: what the template does not know of them is told in
  // messages; an assistant's message without content, and arguments as an object or a text, are put as the template
  // takes them.
  Prompt render(const nlohmann::ordered_json& messages, const ChatTemplateOptions& options = {}) const;

  const ChatTemplate& chat_template() const { return template_; }
  const Dialect& dialect() const { return dialect_; }
  // Whether the template knows reasoning, which is then looked for in answers.
  bool reasons() const { return reasoning_ != nullptr; }
  const ReasoningBlock* reasoning() const { return reasoning_; }  // as the template has it; null: it knows none
  // Whether marks of the dialect are special tokens, which must stay in the text then.
  bool has_special_marks(const Tokenizer& tokenizer) const;

 private:
  std::string render_tools(const nlohmann::ordered_json& messages, const ChatTemplateOptions& options) const;

  ChatTemplate template_;
  const Dialect& dialect_;
  const ReasoningBlock* reasoning_;
  bool asks_for_none_;  // the template looks whether a content is none
};

}  // namespace ingot
