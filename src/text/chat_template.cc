#include "text/chat_template.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/jinja/strings.h"
#include "text/jinja/template.h"

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr const char* kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};

void check_messages(const Json& messages) {
  if (!messages.is_array())
    throw_error(ErrorKind::bad_call, "messages: expected an array, got {}", messages.type_name());
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object())
      throw_error(ErrorKind::bad_call, "messages[{}]: expected an object, got {}", i, messages[i].type_name());
  }
}

// Templates read a message's reasoning under different names; it is given under all that they read.
jinja::Value message_value(const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* name : kReasoningNames) {
    const auto it = message.find(name);
    if (reasoning == nullptr && it != message.end() && !it->is_null()) reasoning = &*it;
  }
  if (reasoning == nullptr) return jinja::Value::from_json(message);
  const jinja::Value value = jinja::Value::from_json(*reasoning);
  auto dict = std::make_shared<jinja::Dict>();
  dict->set("thinking", value);
  for (const auto& [key, field] : message.items()) dict->set(key, jinja::Value::from_json(field));
  dict->set("reasoning_content", value);
  return std::shared_ptr<const jinja::Dict>(std::move(dict));
}

// Marks the end of a message's text and returns that text without the mark.
std::string mark_final_message(Json& message) {
  Json* content = message.contains("content") ? &message["content"] : nullptr;
  if (content == nullptr || content->is_null())
    throw_error(ErrorKind::bad_call, "continue_final_message: the final message has no content to continue");
  if (content->is_array()) {
    Json* text = nullptr;
    for (auto& part : *content)
      if (part.is_object() && part.contains("text")) text = &part["text"];
    if (text == nullptr)
      throw_error(ErrorKind::bad_call, "continue_final_message: the final message has no text to continue");
    content = text;
  }
  if (!content->is_string())
    throw_error(ErrorKind::bad_call, "continue_final_message: the content of the final message is not a text");
  std::string text = content->get<std::string>();
  *content = text + std::string(kContinueTag);
  return text;
}

// The rendered text up to the mark that mark_final_message() left.
std::string cut_at_mark(const std::string& text, const std::string& final_message) {
  const size_t at = jinja::rfind_text(text, jinja::strip(kContinueTag));
  if (at == text.npos || jinja::find_text(text, jinja::strip(final_message)) == text.npos) {
    throw_error(ErrorKind::bad_call,
                "continue_final_message: the chat template leaves out the final message or changes it, so that it "
                "cannot be continued");
  }
  const std::string_view before = std::string_view(text).substr(0, at);
  // Without the mark's space the template trims the message, so what is before it goes as well.
  const bool kept = text.compare(at, kContinueTag.size(), kContinueTag) == 0;
  return std::string(kept ? before : jinja::strip_right(before));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string bos_token, std::string eos_token)
    : source_(std::move(source)),
      bos_token_(std::move(bos_token)),
      eos_token_(std::move(eos_token)),
      template_(std::make_unique<jinja::Template>(source_)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Json& messages, const ChatTemplateOptions& options) const {
  check_messages(messages);
  if (options.continue_final_message && options.add_generation_prompt) {
    throw_error(ErrorKind::bad_call,
                "continue_final_message and add_generation_prompt exclude each other: the first goes on with the last "
                "message, the second starts a new one");
  }
  if (options.tools != nullptr && !options.tools->is_array() && !options.tools->is_null())
    throw_error(ErrorKind::bad_call, "tools: expected an array, got {}", options.tools->type_name());
  if (options.extra != nullptr && !options.extra->is_object() && !options.extra->is_null())
    throw_error(ErrorKind::bad_call, "template variables: expected an object, got {}", options.extra->type_name());

  Json last = options.continue_final_message && !messages.empty() ? messages.back() : Json::object();
  std::string final_message;
  if (options.continue_final_message) final_message = mark_final_message(last);

  std::vector<std::pair<std::string_view, jinja::Value>> variables;
  std::unordered_map<std::string_view, size_t> places;  // in variables
  const auto set = [&](std::string_view name, jinja::Value value) {
    const auto [place, fresh] = places.try_emplace(name, variables.size());
    if (fresh)
      variables.emplace_back(name, std::move(value));
    else
      variables[place->second].second = std::move(value);
  };
  try {
    set("bos_token", bos_token_);
    set("eos_token", eos_token_);
    set("documents", jinja::Value());
    if (options.extra != nullptr)
      for (const auto& item : options.extra->get_ref<const Json::object_t&>())
        set(item.first, jinja::Value::from_json(item.second));
    std::vector<jinja::Value> chat;
    for (const Json& message : messages) chat.push_back(message_value(message));
    if (options.continue_final_message) chat.back() = message_value(last);
    set("messages", jinja::Value::list(std::move(chat)));
    set("tools", options.tools == nullptr ? jinja::Value() : jinja::Value::from_json(*options.tools));
    set("add_generation_prompt", options.add_generation_prompt);
  } catch (const jinja::Raise& e) {
    throw_error(ErrorKind::bad_call, "conversation: {}", e.message);
  }
  jinja::RenderOptions render_options;
  render_options.now = options.now;
  render_options.cancelled = options.cancelled;
  std::string text = template_->render(std::move(variables), render_options);
  return options.continue_final_message ? cut_at_mark(text, final_message) : text;
}

}  // namespace ingot
