#pragma once

#include <atomic>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ingot {

namespace jinja {
class Template;
}

struct ChatTemplateOptions {
  // Whether the text ends with what starts the assistant's answer.
  bool add_generation_prompt = true;
  // The text ends inside the last message, for the model to go on with it. Not together with add_generation_prompt.
  bool continue_final_message = false;
  const nlohmann::ordered_json* tools = nullptr;  // an array of tool schemas; null: none
  const nlohmann::ordered_json* extra = nullptr;  // an object of more variables, e.g. {"enable_thinking": false}
  std::optional<std::tm> now;                     // what strftime_now() says; the local time when absent
  const std::atomic<bool>* cancelled = nullptr;   // set from outside: render() throws Error (cancelled) soon
};

// A model's chat template: turns a conversation into the text the model was trained on. It is the Jinja template that
// comes with the model, run as Hugging Face's apply_chat_template() does. Can be used by several threads at once.
class ChatTemplate {
 public:
  // Throws Error (bad_file) with the line when the template is not valid, or uses something not supported.
  ChatTemplate(std::string source, std::string bos_token, std::string eos_token);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `messages` is an array of objects with "role" and "content". Throws Error: bad_call with the template's own message
  // when it refuses the conversation, or when it cannot be rendered; bad_file when the template runs over a limit
  // (jinja/limits.h).
  std::string render(const nlohmann::ordered_json& messages, const ChatTemplateOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::string bos_token_;
  std::string eos_token_;
  std::unique_ptr<const jinja::Template> template_;
};

}  // namespace ingot
