#include <nlohmann/json.hpp>

#include "server/openai/answer.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

class ChatWriter final : public AnswerWriter {
 public:
  explicit ChatWriter(AnswerContext context)
      : context_(std::move(context)),
        chunk_head_(answer_head(context_, "chat.completion.chunk")),
        begun_(static_cast<size_t>(context_.n)) {}

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    const PromptAnswer& answer = answers.at(0);
    std::vector<std::string> choices;
    for (const ChoiceDelta& choice : answer.choices) {
      Json entry = {{"index", choice.index},
                    {"message", {{"role", "assistant"}, {"content", echo() + choice.text}, {"refusal", nullptr}}},
                    {"logprobs", logprobs(choice)},
                    {"finish_reason", finish_json(choice.finish)},
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
    if (index >= begun_.size()) return;
    if (!begun_[index]) {
      begun_[index] = true;
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
    if (delta.text.empty() && !last && !more) return;
    Json gained = Json::object();
    if (!delta.text.empty() || more) gained["content"] = delta.text;
    Json choice = {{"index", delta.index},
                   {"delta", std::move(gained)},
                   {"logprobs", delta.scores.empty() ? Json() : logprobs(delta)},
                   {"finish_reason", finish_json(delta.finish)}};
    if (last) choice["stop_reason"] = stop_reason_json(delta);
    if (context_.output.token_ids) choice["token_ids"] = delta.token_ids;
    append_choice_event(context_, chunk_head_, std::move(choice), usage, out);
  }

  void stream_usage(const Usage& usage, std::string& out) override { append_usage_event(chunk_head_, usage, out); }

 private:
  std::string echo() const { return context_.output.echo ? context_.prompts.at(0).text : ""; }
  Json logprobs(const ChoiceDelta& choice) const {
    if (!context_.output.logprobs) return nullptr;
    return chat_logprobs(context_.names, choice.scores, context_.output.top_logprobs);
  }

  AnswerContext context_;
  Json chunk_head_;
  std::vector<bool> begun_;  // choices whose role was sent
  bool ids_sent_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context) {
  return std::make_unique<ChatWriter>(std::move(context));
}

}  // namespace ingot::server::openai
