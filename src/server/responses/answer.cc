#include "server/responses/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ingot/tokenizer.h"
#include "server/openai/sse.h"
#include "server/responses/conversation.h"

namespace ingot::server::responses {
namespace {

using Json = nlohmann::ordered_json;
using openai::AnswerContext;
using openai::Usage;

// The events of one response, in order; without a stream they are counted for nobody.
class Events {
 public:
  void add(std::string* out, const char* type, Json members) {
    if (out == nullptr) return;
    Json event = {{"type", type}, {"sequence_number", next_++}};
    event.update(members);
    openai::append_event(*out, type, openai::dump(event));
  }
  // With a whole response, which is a text already.
  void add_response(std::string& out, const char* type, const std::string& response) {
    openai::append_event(out, type,
                         fmt::format(R"({{"type":"{}","sequence_number":{},"response":{}}})", type, next_++, response));
  }

 private:
  int64_t next_ = 0;
};

// The output items of a response, made of what the model says as it comes.
class Output {
 public:
  explicit Output(Events& events) : events_(events) {}

  void add(const ChatEvent& event, std::string* out) {
    switch (event.kind) {
      case ChatEvent::Kind::reasoning: add_text("reasoning", event.text, out); break;
      case ChatEvent::Kind::content: add_text("message", event.text, out); break;
      case ChatEvent::Kind::call_begin:
        open({{"id", new_id("fc_")},
              {"type", "function_call"},
              {"status", "in_progress"},
              {"call_id", event.id},
              {"name", event.text},
              {"arguments", ""}},
             out);
        break;
      case ChatEvent::Kind::arguments:
        text_ += event.text;
        events_.add(out, "response.function_call_arguments.delta", place({{"delta", event.text}}));
        break;
      case ChatEvent::Kind::call_end: break;
    }
  }
  // Log probabilities of tokens; they come with the next text of a message.
  void add_scores(const Json& scores) { waiting_.insert(waiting_.end(), scores.begin(), scores.end()); }

  // Nothing more comes. A response without any item has an empty message.
  void end(const char* status, std::string* out) {
    if (items_.empty() && item_.is_null()) add_text("message", "", out);
    close(status, out);
  }

  const Json& items() const { return items_; }
  const std::string& reasoning() const { return reasoning_; }

 private:
  bool is(const char* type) const { return item_.is_object() && item_["type"] == type; }

  void add_text(const char* type, const std::string& text, std::string* out) {
    const bool message = std::string_view(type) == "message";
    if (!is(type)) {
      Json item = {{"id", new_id(message ? "msg_" : "rs_")}, {"type", type}, {"status", "in_progress"}};
      if (message)
        item["role"] = "assistant";
      else
        item["summary"] = Json::array();
      item["content"] = Json::array();
      open(std::move(item), out);
      events_.add(out, "response.content_part.added", place({{"content_index", 0}, {"part", part()}}));
    }
    text_ += text;
    if (!message) reasoning_ += text;
    if (text.empty()) return;
    Json members = {{"content_index", 0}, {"delta", text}};
    if (message) members["logprobs"] = take_scores();
    events_.add(out, message ? "response.output_text.delta" : "response.reasoning_text.delta", place(members));
  }

  void open(Json item, std::string* out) {
    close("completed", out);
    item_ = std::move(item);
    events_.add(out, "response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
  }

  void close(const char* status, std::string* out) {
    if (item_.is_null()) return;
    if (is("function_call")) {
      item_["arguments"] = text_;
      events_.add(out, "response.function_call_arguments.done", place({{"name", item_["name"]}, {"arguments", text_}}));
    } else {
      const bool message = is("message");
      if (message) take_scores();
      Json members = {{"content_index", 0}, {"text", text_}};
      if (message) members["logprobs"] = scores_;
      events_.add(out, message ? "response.output_text.done" : "response.reasoning_text.done", place(members));
      events_.add(out, "response.content_part.done", place({{"content_index", 0}, {"part", part()}}));
      item_["content"].push_back(part());
    }
    item_["status"] = status;
    events_.add(out, "response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
    items_.push_back(std::exchange(item_, Json()));
    text_.clear();
    scores_ = Json::array();
  }

  // Where the open item is, in front of what an event says of it.
  Json place(const Json& members) const {
    Json placed = {{"item_id", item_["id"]}, {"output_index", items_.size()}};
    placed.update(members);
    return placed;
  }

  Json part() const {
    if (!is("message")) return {{"type", "reasoning_text"}, {"text", text_}};
    return {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}, {"logprobs", scores_}};
  }

  Json take_scores() {
    scores_.insert(scores_.end(), waiting_.begin(), waiting_.end());
    return std::exchange(waiting_, Json::array());
  }

  Events& events_;
  Json items_ = Json::array();  // closed ones
  Json item_;                   // the open one, without its text; null: none is
  std::string text_;            // of it, or its arguments
  Json scores_ = Json::array(), waiting_ = Json::array();
  std::string reasoning_;
};

class ResponseWriter final : public openai::AnswerWriter {
 public:
  ResponseWriter(AnswerContext context, ResponseFrame frame)
      : context_(std::move(context)), frame_(std::move(frame)), reader_(context_.reading) {}

  std::string whole(const std::vector<openai::PromptAnswer>& answers, const Usage& usage) override {
    for (const ChoiceDelta& delta : answers.at(0).choices) read(delta, nullptr);
    return finish(usage, nullptr);
  }

  void stream(size_t, const ChoiceDelta& delta, const std::vector<TokenScore>&, const Usage&,
              std::string& out) override {
    begin(out);
    read(delta, &out);
  }

  void stream_end(const Usage& usage, std::string& out) override {
    begin(out);
    const std::string response = finish(usage, &out);
    events_.add_response(out, incomplete() ? "response.incomplete" : "response.completed", response);
  }

  void stream_error(const openai::ErrorReply& error, std::string& out) override {
    begin(out);
    const Json reason = {{"code", error.status == 503 ? "rate_limit_exceeded" : "server_error"},
                         {"message", error.message}};
    events_.add_response(out, "response.failed", response_text("failed", nullptr, reason));
  }

 private:
  void begin(std::string& out) {
    if (std::exchange(begun_, true)) return;
    const std::string response = response_text("in_progress", nullptr);
    events_.add_response(out, "response.created", response);
    events_.add_response(out, "response.in_progress", response);
  }

  void read(const ChoiceDelta& delta, std::string* out) {
    if (context_.output.logprobs)
      output_.add_scores(chat_logprobs(context_.names, delta.scores, context_.output.top_logprobs)["content"]);
    for (const ChatEvent& event : reader_.read(delta)) output_.add(event, out);
    if (delta.finish == FinishReason::none) return;
    reason_ = delta.finish;
    finish_ = reader_.finish_reason(delta.finish);
  }

  bool incomplete() const { return finish_ != "stop" && finish_ != "tool_calls"; }

  // The response as it is kept and answered with.
  std::string finish(const Usage& usage, std::string* out) {
    const char* status = incomplete() ? "incomplete" : "completed";
    output_.end(status, out);
    std::string response = response_text(status, usage_of(usage));
    if (frame_.store) frame_.store->put(frame_.tenant, context_.id, {response, openai::dump(*frame_.items)});
    return response;
  }

  Json usage_of(const Usage& usage) const {
    // The engine does not know what a token was for; tokenizing the text again comes as near as one can.
    const int64_t reasoning =
        output_.reasoning().empty() || context_.names.tokenizer == nullptr
            ? 0
            : std::ssize(context_.names.tokenizer->encode(output_.reasoning(), {.add_special = false}));
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", std::min<int64_t>(reasoning, usage.completion_tokens)}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  }

  std::string response_text(const char* status, const Json& usage, const Json& error = nullptr) const {
    Json details;
    if (std::string_view(status) == "incomplete")
      details = {{"reason", reason_ == FinishReason::timeout ? Json() : Json("max_output_tokens")}};
    std::string text = openai::dump({{"id", context_.id},
                                     {"object", "response"},
                                     {"created_at", context_.created},
                                     {"status", status},
                                     {"error", error},
                                     {"incomplete_details", std::move(details)},
                                     {"model", context_.model},
                                     {"output", output_.items()},
                                     {"usage", usage}});
    text.back() = ',';
    return text.append(frame_.echoed, 1);
  }

  const AnswerContext context_;
  const ResponseFrame frame_;
  openai::ChoiceReader reader_;
  Events events_;
  Output output_{events_};
  bool begun_ = false;
  FinishReason reason_ = FinishReason::none;
  std::string finish_ = "abort";
};

}  // namespace

std::unique_ptr<openai::AnswerWriter> make_response_writer(AnswerContext context, ResponseFrame frame) {
  return std::make_unique<ResponseWriter>(std::move(context), std::move(frame));
}

}  // namespace ingot::server::responses
