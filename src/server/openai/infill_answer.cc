#include <nlohmann/json.hpp>

#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/sse.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

const char* stop_type(const ChoiceDelta& delta) {
  if (std::holds_alternative<std::string>(delta.stop_reason)) return "word";
  return delta.finish == FinishReason::stop ? "eos" : "limit";
}

Json timings_json(const Usage& usage) {
  const auto part = [](Json& out, const std::string& name, int64_t tokens, double seconds) {
    out[name + "_n"] = tokens;
    out[name + "_ms"] = seconds * 1e3;
    out[name + "_per_token_ms"] = tokens > 0 ? seconds * 1e3 / static_cast<double>(tokens) : 0.0;
    out[name + "_per_second"] = seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  Json timings;
  part(timings, "prompt", usage.prompt_tokens - usage.cached_tokens, usage.prefill_s);
  part(timings, "predicted", usage.completion_tokens, usage.decode_s);
  return timings;
}

// What llama-server answers to /infill.
class InfillWriter final : public AnswerWriter {
 public:
  explicit InfillWriter(AnswerContext context) : context_(std::move(context)) {}

  std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) override {
    const ChoiceDelta& choice = answers.at(0).choices.at(0);
    has_new_line_ = choice.text.find('\n') != std::string::npos;
    return dump(wanted(last_json(choice, usage)));
  }

  void stream(size_t, const ChoiceDelta& delta, const std::vector<TokenScore>&, const Usage& usage,
              std::string& out) override {
    has_new_line_ |= delta.text.find('\n') != std::string::npos;
    if (delta.finish == FinishReason::none && delta.text.empty()) return;
    append_event(out, dump(delta.finish == FinishReason::none ? part_json(delta, usage) : last_json(delta, usage)));
  }
  void stream_end(const Usage&, std::string&) override {}  // the last event says so itself
  void stream_error(const ErrorReply& error, std::string& out) override { append_event(out, error.json()); }

 private:
  Json part_json(const ChoiceDelta& delta, const Usage& usage) const {
    return {{"index", 0},
            {"content", delta.text},
            {"tokens", context_.output.token_ids ? Json(delta.token_ids) : Json::array()},
            {"id_slot", -1},
            {"stop", delta.finish != FinishReason::none},
            {"tokens_predicted", usage.completion_tokens},
            {"tokens_evaluated", usage.prompt_tokens}};
  }

  Json last_json(const ChoiceDelta& delta, const Usage& usage) const {
    Json last = part_json(delta, usage);
    const auto* word = std::get_if<std::string>(&delta.stop_reason);
    last["model"] = context_.model;
    last["has_new_line"] = has_new_line_;
    last["truncated"] = false;
    last["stop_type"] = stop_type(delta);
    last["stopping_word"] = word != nullptr ? *word : "";
    last["tokens_cached"] = usage.cached_tokens;
    last["timings"] = timings_json(usage);
    return last;
  }

  // The members that were asked for, each under its path ("timings/prompt_n").
  Json wanted(Json answer) const {
    if (context_.output.response_fields.empty()) return answer;
    Json chosen = Json::object();
    for (const std::string& path : context_.output.response_fields) {
      const Json* value = &answer;
      for (size_t at = 0; value != nullptr && at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        const std::string name = path.substr(at, end - at);
        value = value->is_object() && value->contains(name) ? &value->at(name) : nullptr;
        at = end + 1;
      }
      if (value != nullptr) chosen[path] = *value;
    }
    return chosen;
  }

  AnswerContext context_;
  bool has_new_line_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_infill_writer(AnswerContext context) {
  return std::make_unique<InfillWriter>(std::move(context));
}

}  // namespace ingot::server::openai
