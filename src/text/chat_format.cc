#include "text/chat_format.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "ingot/tokenizer.h"
#include "text/calls/tool_prompt.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

using ChatJson = nlohmann::ordered_json;

const ReasoningBlock* find_reasoning(const Dialect& dialect, std::string_view source) {
  const auto knows = [&](const ReasoningBlock& block) {
    return source.find(block.open) != source.npos || source.find(block.close) != source.npos;
  };
  const auto found = std::find_if(dialect.reasoning.begin(), dialect.reasoning.end(), knows);
  if (found != dialect.reasoning.end()) return &*found;
  return dialect.make_parser != nullptr ? &dialect.reasoning.front() : nullptr;
}

// `message.content is none`, `message['content'] is not none`.
bool asks_whether_content_is_none(std::string_view source) {
  for (size_t at = source.find("content"); at != source.npos; at = source.find("content", at + 1)) {
    std::string_view rest = source.substr(at + std::string_view("content").size());
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of("'\"]")));
    if (rest.starts_with(" is none") || rest.starts_with(" is not none")) return true;
  }
  return false;
}

// How messages are put that templates disagree about.
struct Wording {
  bool empty_content = false;   // "" where there is none
  bool text_arguments = false;  // JSON as a text instead of the object
};

void reword(ChatJson& messages, const Wording& wording) {
  for (ChatJson& message : messages) {
    if (!message.is_object()) continue;
    if (const auto content = message.find("content");
        wording.empty_content && content != message.end() && content->is_null())
      *content = "";
    const auto calls = message.find("tool_calls");
    if (!wording.text_arguments || calls == message.end() || !calls->is_array()) continue;
    for (ChatJson& call : *calls) {
      const auto function = call.is_object() ? call.find("function") : call.end();
      if (!call.is_object() || function == call.end() || !function->is_object()) continue;
      const auto arguments = function->find("arguments");
      if (arguments == function->end() || !arguments->is_structured()) continue;
      *arguments = arguments->dump(-1, ' ', false, ChatJson::error_handler_t::replace);
    }
  }
}

// Nothing that templates disagree about.
bool is_plain(const ChatJson& messages, const ChatTemplateOptions& options) {
  if (options.tools != nullptr && !options.tools->empty()) return false;
  if (!messages.is_array()) return true;
  return std::all_of(messages.begin(), messages.end(), [](const ChatJson& message) {
    if (!message.is_object()) return true;
    const auto content = message.find("content"), role = message.find("role");
    return !message.contains("tool_calls") && (content == message.end() || !content->is_null()) &&
           (role == message.end() || (*role != "tool" && *role != "function"));
  });
}

}  // namespace

ChatFormat::ChatFormat(std::string source, std::string bos_token, std::string eos_token, std::string_view tool_format)
    : template_(std::move(source), std::move(bos_token), std::move(eos_token)),
      dialect_(tool_format.empty() ? choose_dialect(template_.source()) : find_dialect(tool_format)),
      reasoning_(find_reasoning(dialect_, template_.source())),
      asks_for_none_(asks_whether_content_is_none(template_.source())) {}

ChatFormat::Prompt ChatFormat::render(const ChatJson& messages, const ChatTemplateOptions& options) const {
  Prompt prompt;
  prompt.text = is_plain(messages, options) ? template_.render(messages, options) : render_tools(messages, options);
  std::string_view text = prompt.text;
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  for (const ReasoningBlock& block : dialect_.reasoning)
    prompt.in_reasoning = prompt.in_reasoning || (reasons() && !block.at_start && text.ends_with(block.open));
  return prompt;
}

// What a template takes cannot be read off its text for sure: where it refuses one wording, others are tried.
std::string ChatFormat::render_tools(const ChatJson& messages, const ChatTemplateOptions& options) const {
  const ChatJson told = tell_tools(messages, options.tools, dialect_, template_.source());
  const bool empty = !asks_for_none_;
  std::vector<ChatJson> refused;
  std::exception_ptr error;  // of the likeliest wording
  for (const Wording& wording : {Wording{empty, false}, {empty, true}, {!empty, false}, {!empty, true}}) {
    ChatJson reworded = told;
    reword(reworded, wording);
    if (std::find(refused.begin(), refused.end(), reworded) != refused.end()) continue;
    try {
      return template_.render(reworded, options);
    } catch (const Error& refusal) {
      if (refusal.kind() != ErrorKind::bad_call) throw;
      if (!error) error = std::current_exception();
      refused.push_back(std::move(reworded));
    }
  }
  std::rethrow_exception(error);
}

bool ChatFormat::has_special_marks(const Tokenizer& tokenizer) const {
  std::vector<std::string> marks{std::string(dialect_.section_open), std::string(dialect_.section_close)};
  for (const Form& form : dialect_.forms) {
    for (const Piece& piece : form.pieces) marks.emplace_back(piece.text);
  }
  for (const ReasoningBlock& block : dialect_.reasoning) {
    marks.emplace_back(block.open);
    marks.emplace_back(block.close);
  }
  if (dialect_.make_parser != nullptr) marks.insert(marks.end(), {"<|channel|>", "<|message|>"});
  return std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
    const int32_t id = mark.empty() ? -1 : tokenizer.find(mark);
    return id >= 0 && tokenizer.is_special(id);
  });
}

}  // namespace ingot
