#include <map>
#include <nlohmann/json.hpp>

#include "server/openai/answer.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

class CompletionWriter final : public ChunkWriter {
 public:
  explicit CompletionWriter(AnswerContext context) : ChunkWriter(std::move(context), "text_completion") {}

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    std::vector<std::string> choices;
    for (size_t prompt = 0; prompt < answers.size(); ++prompt) {
      const PromptAnswer& answer = answers[prompt];
      for (const ChoiceDelta& choice : answer.choices) {
        Json entry = choice_json(prompt, choice, answer.prompt_scores, true);
        // Once a prompt: they are the same for all its choices.
        if (context_.output.prompt_logprobs)
          entry["prompt_logprobs"] =
              &choice == &answer.choices.front() ? prompt_logprobs(context_.names, answer.prompt_scores) : Json();
        choices.push_back(dump(entry));
      }
    }
    return whole_answer(answer_head(context_, "text_completion"), choices, {{"usage", usage_json(usage)}});
  }

  void stream(size_t prompt, const ChoiceDelta& delta, const std::vector<TokenScore>& prompt_scores, const Usage& usage,
              std::string& out) override {
    const OutputOptions& output = context_.output;
    const bool first = !state_.contains(index_of(prompt, delta));
    const bool last = delta.finish != FinishReason::none;
    const bool more = (output.token_ids && !delta.token_ids.empty()) || (output.logprobs && !delta.scores.empty());
    if (delta.text.empty() && !last && !more && !(first && output.echo)) return;
    append_choice(choice_json(prompt, delta, prompt_scores, last), usage, out);
  }

  void stream_progress(size_t prompt, const PromptProgress& progress, std::string& out) override {
    append_progress({{"index", index_of(prompt, {})}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}},
                    progress, out);
  }

 private:
  struct ChoiceState {
    std::unique_ptr<TextLogprobs> logprobs;
  };

  int64_t index_of(size_t prompt, const ChoiceDelta& delta) const {
    return static_cast<int64_t>(prompt) * context_.n + delta.index;
  }

  Json choice_json(size_t prompt, const ChoiceDelta& delta, const std::vector<TokenScore>& prompt_scores, bool last) {
    const OutputOptions& output = context_.output;
    const PromptTokens& given = context_.prompts.at(prompt);
    const auto [entry, first] = state_.try_emplace(index_of(prompt, delta));
    ChoiceState& state = entry->second;
    if (first && output.logprobs) {
      state.logprobs = std::make_unique<TextLogprobs>(context_.names, context_.skip_special, output.top_logprobs);
      if (output.echo) state.logprobs->add_prompt(prompt_scores, given.text);
    }
    std::string text = first && output.echo ? given.text : "";
    text += delta.text;
    Json choice = {{"index", index_of(prompt, delta)}, {"text", std::move(text)}, {"logprobs", nullptr}};
    if (output.logprobs) {
      state.logprobs->add(delta.scores);
      choice["logprobs"] = state.logprobs->take();
    }
    choice["finish_reason"] = finish_json(delta.finish);
    if (last) choice["stop_reason"] = stop_reason_json(delta);
    if (output.token_ids) {
      choice["token_ids"] = delta.token_ids;
      if (first) choice["prompt_token_ids"] = given.ids;
    }
    return choice;
  }

  std::map<int64_t, ChoiceState> state_;  // choices that were written before, by index
};

}  // namespace

std::unique_ptr<AnswerWriter> make_completion_writer(AnswerContext context) {
  return std::make_unique<CompletionWriter>(std::move(context));
}

}  // namespace ingot::server::openai
