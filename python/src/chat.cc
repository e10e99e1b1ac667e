#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "llm_core.h"
#include "module.h"
#include "text/calls/hold_answer.h"
#include "text/chat_format.h"
#include "text/dialects/dialect.h"

// Conversations: how they become prompts, and what the answers mean.
namespace ingot::python {
namespace {

using Json = nlohmann::ordered_json;

// The text of one choice, taken apart as it comes.
class ChatReader {
 public:
  ChatReader(std::shared_ptr<const ChatFormat> format, const ChatParserOptions& options)
      : format_(std::move(format)), parser_(make_chat_parser(format_->dialect(), options)) {}

  // (content, reasoning, [(index, id, name, arguments)]): what `text` adds. A call's first entry has its name, which is
  // None in those that follow with more of its arguments.
  nb::tuple read(const std::string& text, bool last) {
    std::vector<ChatEvent> events = parser_->feed(text);
    if (last)
      for (ChatEvent& event : parser_->finish()) events.push_back(std::move(event));
    std::string content, reasoning;
    nb::list calls;
    for (const ChatEvent& event : events) switch (event.kind) {
        case ChatEvent::Kind::content: content += event.text; break;
        case ChatEvent::Kind::reasoning: reasoning += event.text; break;
        case ChatEvent::Kind::call_begin: calls.append(nb::make_tuple(event.index, event.id, event.text, "")); break;
        case ChatEvent::Kind::arguments: calls.append(nb::make_tuple(event.index, "", nb::none(), event.text)); break;
        case ChatEvent::Kind::call_end: break;
      }
    return nb::make_tuple(content, reasoning, calls);
  }

  std::string finish_reason(const std::string& otherwise) const {
    return otherwise == "stop" ? std::string(chat_finish_reason(*parser_, otherwise)) : otherwise;
  }

 private:
  std::shared_ptr<const ChatFormat> format_;
  std::unique_ptr<ChatParser> parser_;
};

// What the conversations of one call have in common.
class ChatTalk {
 public:
  // `tools_json`: a list, or "" for none; `tool_choice`: auto, none, required, or a function's name; `tool_format`: ""
  // for the template's own.
  ChatTalk(const LlmCore& core, const std::string& tools_json, const std::string& tool_choice,
           const std::string& tool_format)
      : choice_(tool_choice) {
    const std::shared_ptr<const Tokenizer> tokenizer = core.tokenizer();
    if (!tokenizer->chat_template())
      throw_error(ErrorKind::declined, "this model has no chat template: use generate() with the whole prompt");
    format_ = std::make_shared<const ChatFormat>(*tokenizer->chat_template(), tokenizer->bos_token(),
                                                 tokenizer->eos_token(), tool_format);
    if (!tools_json.empty() && choice_ != "none") tools_ = parse_ordered_json(tools_json, "tools");
    check_choice();
    options_ = {.calls = !tools_.is_null(), .reasoning = format_->reasons()};
    if (options_.calls) options_.tools = ToolSchemas(tools_);
    keeps_special_ = (options_.calls || options_.reasoning) && format_->has_special_marks(*tokenizer);
  }

  // (text, whether it ends in what opens the model's reasoning)
  nb::tuple render(const std::string& messages_json, bool add_generation_prompt, bool continue_final_message,
                   const std::string& variables_json) const {
    const Json variables = parse_ordered_json(variables_json, "chat_template_kwargs");
    const ChatFormat::Prompt prompt = format_->render(parse_ordered_json(messages_json, "messages"),
                                                      {.add_generation_prompt = add_generation_prompt,
                                                       .continue_final_message = continue_final_message,
                                                       .tools = tools_.is_null() ? nullptr : &tools_,
                                                       .extra = &variables});
    return nb::make_tuple(prompt.text, prompt.in_reasoning);
  }

  // Makes what the text of the answer must be what the whole answer must be; before it is compiled. `budget`: of the
  // reasoning, in tokens; -1: none.
  void hold(StructuredOutput& structured, bool parallel_calls, bool in_reasoning, int64_t budget) const {
    const bool named = choice_ != "auto" && choice_ != "none" && choice_ != "required";
    hold_answer(*format_,
                {.tools = tools_.is_null() ? nullptr : &tools_,
                 .calls_only = choice_ == "required" || named,
                 .function = named ? choice_ : "",
                 .parallel_calls = parallel_calls,
                 .in_reasoning = in_reasoning,
                 .thinking_budget = budget >= 0},
                structured);
  }

  std::unique_ptr<ChatReader> reader(bool in_reasoning) const {
    ChatParserOptions options = options_;
    options.in_reasoning = in_reasoning;
    return std::make_unique<ChatReader>(format_, options);
  }

  bool keeps_special() const { return keeps_special_; }
  bool short_ids() const { return format_->dialect().short_ids; }

 private:
  void check_choice() const {
    if (choice_ == "auto" || choice_ == "none") return;
    if (tools_.is_null()) throw_bad_parameter("tool_choice", "is \"{}\", but there are no tools", choice_);
    if (choice_ == "required") return;
    for (const Json& tool : tools_)
      if (tool.is_object() && tool.contains("function") && tool["function"].value("name", "") == choice_) return;
    throw_bad_parameter("tool_choice", "is \"{}\": it must be auto, none, required or the name of a tool", choice_);
  }

  std::shared_ptr<const ChatFormat> format_;
  std::string choice_;
  Json tools_;
  ChatParserOptions options_;
  bool keeps_special_ = false;
};

}  // namespace

void bind_chat(nb::module_& m) {
  nb::class_<ChatReader>(m, "ChatReader", "The text of one choice, taken apart as it comes.")
      .def("read", &ChatReader::read, nb::arg("text"), nb::arg("last"),
           "What the text adds: (content, reasoning, [(index, id, name or None, arguments)]).")
      .def("finish_reason", &ChatReader::finish_reason, nb::arg("otherwise"));
  nb::class_<ChatTalk>(m, "ChatTalk", "How conversations become prompts, and answers are read; use LLM.chat().")
      .def(nb::init<const LlmCore&, const std::string&, const std::string&, const std::string&>(), nb::arg("core"),
           nb::arg("tools_json"), nb::arg("tool_choice"), nb::arg("tool_format"))
      .def("hold", &ChatTalk::hold, nb::arg("structured"), nb::arg("parallel_calls"), nb::arg("in_reasoning"),
           nb::arg("budget"), "Holds the whole answer, reasoning and calls included, to what its text must be.")
      .def("render", &ChatTalk::render, nb::arg("messages_json"), nb::arg("add_generation_prompt"),
           nb::arg("continue_final_message"), nb::arg("variables_json"))
      .def("reader", &ChatTalk::reader, nb::arg("in_reasoning"))
      .def_prop_ro("keeps_special", &ChatTalk::keeps_special, "Whether marks of the answer are special tokens.")
      .def_prop_ro("short_ids", &ChatTalk::short_ids, "Whether ids of calls are nine letters or digits.");
}

}  // namespace ingot::python
