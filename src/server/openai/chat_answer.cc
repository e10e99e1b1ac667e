#include <nlohmann/json.hpp>

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

Json finish_of(const ChoiceReader& reader, const ChoiceDelta& delta) {
  if (delta.finish == FinishReason::none) return nullptr;
  return reader.finish_reason(delta.finish);
}

class ChatWriter final : public ChunkWriter {
 public:
  explicit ChatWriter(AnswerContext context) : ChunkWriter(std::move(context), "chat.completion.chunk") {
    for (int32_t i = 0; i < context_.n; ++i) choices_.push_back({.reader = ChoiceReader(context_.reading)});
  }

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    const PromptAnswer& answer = answers.at(0);
    std::vector<std::string> choices;
    for (const ChoiceDelta& choice : answer.choices) {
      ChoiceReader& reader = choices_.at(static_cast<size_t>(choice.index)).reader;
      Gain gain;
      for (const ChatEvent& event : reader.read(choice)) gain.add(event);
      const bool reasons =
          context_.reading && context_.reading->options.reasoning && context_.reading->include_reasoning;
      Json entry = {{"index", choice.index},
                    {"message", gain.message(echo(), reasons)},
                    {"logprobs", logprobs(choice)},
                    {"finish_reason", finish_of(reader, choice)},
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
      append_choice(std::move(choice), usage, out);
    }
    const bool last = delta.finish != FinishReason::none;
    const bool more =
        context_.output.token_ids ? !delta.token_ids.empty() : context_.output.logprobs && !delta.scores.empty();
    ChoiceReader& reader = choices_[index].reader;
    std::vector<Json> gains;
    for (const ChatEvent& event : reader.read(delta)) gains.push_back(delta_of(event));
    if (gains.empty() && more) gains.push_back({{"content", ""}});
    if (gains.empty() && last) gains.push_back(Json::object());
    for (Json& gain : gains) {  // the tokens come with the first, the reason with the last
      const bool first_gain = &gain == &gains.front(), last_gain = &gain == &gains.back();
      Json choice = {{"index", delta.index},
                     {"delta", std::move(gain)},
                     {"logprobs", delta.scores.empty() || !first_gain ? Json() : logprobs(delta)},
                     {"finish_reason", last_gain ? finish_of(reader, delta) : Json()}};
      if (last && last_gain) choice["stop_reason"] = stop_reason_json(delta);
      if (context_.output.token_ids) choice["token_ids"] = first_gain ? delta.token_ids : std::vector<int32_t>{};
      append_choice(std::move(choice), usage, out);
    }
  }

  void stream_progress(size_t, const PromptProgress& progress, std::string& out) override {
    append_progress({{"index", 0}, {"delta", Json::object()}, {"logprobs", nullptr}, {"finish_reason", nullptr}},
                    progress, out);
  }

 private:
  struct Choice {
    bool begun = false;  // its role was sent
    ChoiceReader reader;
  };

  std::string echo() const { return context_.output.echo ? context_.prompts.at(0).text : ""; }

  Json logprobs(const ChoiceDelta& choice) const {
    if (!context_.output.logprobs) return nullptr;
    return chat_logprobs(context_.names, choice.scores, context_.output.top_logprobs);
  }

  std::vector<Choice> choices_;
  bool ids_sent_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context) {
  return std::make_unique<ChatWriter>(std::move(context));
}

}  // namespace ingot::server::openai
