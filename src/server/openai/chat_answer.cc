#include <nlohmann/json.hpp>
#include <optional>

#include "server/openai/answer.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

// What a choice gained, as its message or its delta has it.
class Gain {
 public:
  void add(const ChatEvent& event) {
    switch (event.kind) {
      case ChatEvent::Kind::content: content_ += event.text; break;
      case ChatEvent::Kind::reasoning: reasoning_ += event.text; break;
      case ChatEvent::Kind::call_begin:
        calls_.push_back(
            {{"id", event.id}, {"type", "function"}, {"function", {{"name", event.text}, {"arguments", ""}}}});
        break;
      case ChatEvent::Kind::arguments:
        calls_.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
        break;
      case ChatEvent::Kind::call_end: break;
    }
  }

  // `reasons`: the model is one of those that do, so that answers without any say so.
  Json message(const std::string& echo, bool reasons) const {
    const std::string content = echo + content_;
    Json message = {{"role", "assistant"},
                    {"content", content.empty() && !calls_.empty() ? Json() : Json(content)},
                    {"refusal", nullptr}};
    if (reasons) message["reasoning_content"] = message["reasoning"] = reasoning_.empty() ? Json() : Json(reasoning_);
    if (!calls_.empty()) message["tool_calls"] = calls_;
    return message;
  }

 private:
  std::string content_, reasoning_;
  Json calls_ = Json::array();
};

// One event of a stream as a delta.
Json delta_of(const ChatEvent& event) {
  switch (event.kind) {
    case ChatEvent::Kind::content: return {{"content", event.text}};
    case ChatEvent::Kind::reasoning: return {{"reasoning_content", event.text}, {"reasoning", event.text}};
    case ChatEvent::Kind::call_begin:
      return {{"tool_calls", Json::array({{{"index", event.index},
                                           {"id", event.id},
                                           {"type", "function"},
                                           {"function", {{"name", event.text}, {"arguments", ""}}}}})}};
    default:
      return {{"tool_calls", Json::array({{{"index", event.index}, {"function", {{"arguments", event.text}}}}})}};
  }
}

class ChatWriter final : public AnswerWriter {
 public:
  explicit ChatWriter(AnswerContext context)
      : context_(std::move(context)),
        chunk_head_(answer_head(context_, "chat.completion.chunk")),
        choices_(static_cast<size_t>(context_.n)) {
    if (context_.reading)
      for (Choice& choice : choices_) choice.reader.emplace(*context_.reading);
  }

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    const PromptAnswer& answer = answers.at(0);
    std::vector<std::string> choices;
    for (const ChoiceDelta& choice : answer.choices) {
      Json finish = finish_json(choice.finish);
      Gain gain;
      for (const ChatEvent& event : read(choice, finish)) gain.add(event);
      const bool reasons =
          context_.reading && context_.reading->options.reasoning && context_.reading->include_reasoning;
      Json entry = {{"index", choice.index},
                    {"message", gain.message(echo(), reasons)},
                    {"logprobs", logprobs(choice)},
                    {"finish_reason", std::move(finish)},
                    {"stop_reason", stop_reason_json(choice)}};
      if (context_.output.token_ids) entry["token_ids"] = choice.token_ids;
      choices.push_back(dump(entry));
    }
    Json tail = {{"usage", usage_json(usage)}, {"service_tier", nullptr}};
    if (context_.output.prompt_logprobs)
      tail["prompt_logprobs"] = prompt_logprobs(context_.names, answer.prompt_scores);
    if (context_.output.token_ids) tail["prompt_token_ids"] = context_.prompts.at(0).ids;
    return whole_answer(answer_head(context_, "chat.completion"), choices, tail);
  }

  void stream(size_t, const ChoiceDelta& delta, const std::vector<TokenScore>&, const Usage& usage,
              std::string& out) override {
    const auto index = static_cast<size_t>(delta.index);
    if (index >= choices_.size()) return;
    if (!choices_[index].begun) {
      choices_[index].begun = true;
      Json choice = {{"index", delta.index},
                     {"delta", {{"role", "assistant"}, {"content", echo()}}},
                     {"logprobs", nullptr},
                     {"finish_reason", nullptr}};
      if (context_.output.token_ids && !ids_sent_) choice["prompt_token_ids"] = context_.prompts.at(0).ids;
      ids_sent_ = true;
      append_choice_event(context_, chunk_head_, std::move(choice), usage, out);
    }
    const bool last = delta.finish != FinishReason::none;
    const bool more =
        context_.output.token_ids ? !delta.token_ids.empty() : context_.output.logprobs && !delta.scores.empty();
    Json finish = finish_json(delta.finish);
    const std::vector<ChatEvent> events = read(delta, finish);
    std::vector<Json> gains;
    for (const ChatEvent& event : events) gains.push_back(delta_of(event));
    if (gains.empty() && more) gains.push_back({{"content", ""}});
    if (gains.empty() && last) gains.push_back(Json::object());
    for (Json& gain : gains) {  // the tokens come with the first, the reason with the last
      const bool first_gain = &gain == &gains.front(), last_gain = &gain == &gains.back();
      Json choice = {{"index", delta.index},
                     {"delta", std::move(gain)},
                     {"logprobs", delta.scores.empty() || !first_gain ? Json() : logprobs(delta)},
                     {"finish_reason", last_gain ? finish : Json()}};
      if (last && last_gain) choice["stop_reason"] = stop_reason_json(delta);
      if (context_.output.token_ids) choice["token_ids"] = first_gain ? delta.token_ids : std::vector<int32_t>{};
      append_choice_event(context_, chunk_head_, std::move(choice), usage, out);
    }
  }

  void stream_progress(size_t, const PromptProgress& progress, std::string& out) override {
    append_progress_event(context_, chunk_head_,
                          {{"index", 0}, {"delta", Json::object()}, {"logprobs", nullptr}, {"finish_reason", nullptr}},
                          progress, out);
  }

  void stream_usage(const Usage& usage, std::string& out) override { append_usage_event(chunk_head_, usage, out); }

 private:
  struct Choice {
    bool begun = false;  // its role was sent
    std::optional<ChoiceReader> reader;
  };

  std::string echo() const { return context_.output.echo ? context_.prompts.at(0).text : ""; }

  // What the text of a delta means. `finish` is changed where that is the reason why it ended.
  std::vector<ChatEvent> read(const ChoiceDelta& delta, Json& finish) {
    const auto index = static_cast<size_t>(delta.index);
    if (index < choices_.size() && choices_[index].reader) {
      ChoiceReader& reader = *choices_[index].reader;
      std::vector<ChatEvent> events = reader.read(delta);
      if (finish.is_string()) finish = reader.finish_reason(finish.get<std::string>());
      return events;
    }
    if (delta.text.empty()) return {};
    return {{.kind = ChatEvent::Kind::content, .index = 0, .text = delta.text, .id = {}, .cut = false}};
  }

  Json logprobs(const ChoiceDelta& choice) const {
    if (!context_.output.logprobs) return nullptr;
    return chat_logprobs(context_.names, choice.scores, context_.output.top_logprobs);
  }

  AnswerContext context_;
  Json chunk_head_;
  std::vector<Choice> choices_;
  bool ids_sent_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context) {
  return std::make_unique<ChatWriter>(std::move(context));
}

}  // namespace ingot::server::openai
