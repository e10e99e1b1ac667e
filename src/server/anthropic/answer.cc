#include "server/anthropic/answer.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "server/openai/body.h"
#include "server/openai/sse.h"

namespace ingot::server::anthropic {
namespace {

using Json = nlohmann::ordered_json;
using openai::AnswerContext;
using openai::Usage;

// A block of thinking must have one when it is sent back; nothing here depends on it.
constexpr const char* kSignature = "ingot";

// Arguments as clients take them, who want an object whatever the model wrote.
Json input_of(const std::string& arguments) {
  if (arguments.empty()) return Json::object();
  try {
    Json input = openai::parse_body(arguments);
    if (input.is_object()) return input;
  } catch (const openai::ApiError&) {
    // cut off, or not well-formed
  }
  return {{"INVALID_JSON", arguments}};
}

Json usage_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

class MessageWriter final : public openai::AnswerWriter {
 public:
  explicit MessageWriter(AnswerContext context) : context_(std::move(context)), reader_(context_.reading) {}

  std::string whole(const std::vector<openai::PromptAnswer>& answers, const Usage& usage) override {
    for (const ChoiceDelta& delta : answers.at(0).choices) read(delta, nullptr);
    end_blocks(nullptr);
    return openai::dump(message(std::move(blocks_), stop_reason_, stop_sequence_, usage));
  }

  void stream(size_t, const ChoiceDelta& delta, const std::vector<TokenScore>&, const Usage& usage,
              std::string& out) override {
    begin(usage, out);
    read(delta, &out);
  }

  void stream_end(const Usage& usage, std::string& out) override {
    begin(usage, out);
    end_blocks(&out);
    add(&out, "message_delta",
        {{"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}}, {"usage", usage_of(usage)}});
    add(&out, "message_stop", Json::object());
  }

  void stream_error(const openai::ErrorReply& error, std::string& out) override {
    openai::append_event(out, "error", error_json(error.text(), ErrorShape::anthropic, context_.request_id));
  }

 private:
  static void add(std::string* out, const char* type, const Json& members) {
    if (out == nullptr) return;
    Json event = {{"type", type}};
    event.update(members);
    openai::append_event(*out, type, openai::dump(event));
  }

  Json message(Json content, const Json& stop_reason, const Json& stop_sequence, const Usage& usage) const {
    return {{"id", context_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", context_.model},
            {"content", std::move(content)},
            {"stop_reason", stop_reason},
            {"stop_sequence", stop_sequence},
            {"usage", usage_of(usage)}};
  }

  void begin(Usage usage, std::string& out) {
    if (std::exchange(begun_, true)) return;
    usage.completion_tokens = 0;
    add(&out, "message_start", {{"message", message(Json::array(), nullptr, nullptr, usage)}});
  }

  void read(const ChoiceDelta& delta, std::string* out) {
    for (const ChatEvent& event : reader_.read(delta)) {
      switch (event.kind) {
        case ChatEvent::Kind::content: add_text("text", "text_delta", event.text, out); break;
        case ChatEvent::Kind::reasoning: add_text("thinking", "thinking_delta", event.text, out); break;
        case ChatEvent::Kind::call_begin:
          open({{"type", "tool_use"}, {"id", event.id}, {"name", event.text}, {"input", Json::object()}}, out);
          break;
        case ChatEvent::Kind::arguments:
          text_ += event.text;
          add_delta({{"type", "input_json_delta"}, {"partial_json", event.text}}, out);
          break;
        case ChatEvent::Kind::call_end: break;
      }
    }
    if (delta.finish == FinishReason::none) return;
    const std::string finish = reader_.finish_reason(delta.finish);
    const auto* stop = std::get_if<std::string>(&delta.stop_reason);
    stop_reason_ = finish == "tool_calls" ? "tool_use" : finish == "stop" ? "end_turn" : "max_tokens";
    if (stop != nullptr && finish == "stop") {
      stop_reason_ = "stop_sequence";
      stop_sequence_ = *stop;
    }
  }

  bool is(std::string_view type) const { return block_.is_object() && block_["type"] == type; }

  // A block of text or thinking; its text stands under its type's name.
  void add_text(const char* type, const char* delta, const std::string& text, std::string* out) {
    if (!is(type)) {
      Json block = {{"type", type}, {type, ""}};
      if (is_thinking(type)) block["signature"] = "";
      open(std::move(block), out);
    }
    text_ += text;
    if (!text.empty()) add_delta({{"type", delta}, {type, text}}, out);
  }
  static bool is_thinking(std::string_view type) { return type == "thinking"; }

  void open(Json block, std::string* out) {
    close(out);
    block_ = std::move(block);
    add(out, "content_block_start", {{"index", index_}, {"content_block", block_}});
  }

  void add_delta(const Json& delta, std::string* out) const {
    add(out, "content_block_delta", {{"index", index_}, {"delta", delta}});
  }

  void close(std::string* out) {
    if (block_.is_null()) return;
    if (is("thinking")) add_delta({{"type", "signature_delta"}, {"signature", kSignature}}, out);
    add(out, "content_block_stop", {{"index", index_++}});
    if (out == nullptr) {  // a stream has said it all
      const std::string type = block_["type"];
      if (type == "tool_use")
        block_["input"] = input_of(text_);
      else
        block_[type] = text_;
      if (is("thinking")) block_["signature"] = kSignature;
      blocks_.push_back(std::move(block_));
    }
    block_ = nullptr;
    text_.clear();
  }

  // An answer without any block has an empty text.
  void end_blocks(std::string* out) {
    if (index_ == 0 && block_.is_null()) add_text("text", "text_delta", "", out);
    close(out);
  }

  const AnswerContext context_;
  openai::ChoiceReader reader_;
  Json blocks_ = Json::array();  // of an answer that is not streamed
  Json block_;                   // the open one, without its text; null: none is
  std::string text_;             // of it, or its input
  int64_t index_ = 0;            // of it
  bool begun_ = false;
  std::string stop_reason_ = "end_turn";
  Json stop_sequence_;
};

}  // namespace

std::unique_ptr<openai::AnswerWriter> make_message_writer(AnswerContext context) {
  return std::make_unique<MessageWriter>(std::move(context));
}

}  // namespace ingot::server::anthropic
