#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "ingot/llm.h"
#include "server/openai/chat_reading.h"
#include "server/openai/logprobs.h"
#include "server/openai/request.h"

// Answers of the completions endpoints as JSON: whole, or chunk by chunk.
namespace ingot::server::openai {

// A prompt as it was given to the model.
struct PromptTokens {
  std::vector<int32_t> ids;
  std::string text;           // what comes back with echo
  bool in_reasoning = false;  // chat: it ends where reasoning begins
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  double prefill_s = 0, decode_s = 0;  // once it is done; the longest of several prompts
};

// What every part of an answer says about its request.
struct AnswerContext {
  std::string id;  // with its prefix
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
  OutputOptions output;
  TokenNames names;
  bool skip_special = true;
  int32_t n = 1;                         // choices a prompt
  std::vector<PromptTokens> prompts;     // chat: one
  std::optional<ChatReading> reading{};  // chat: how its text is taken apart; none: it is content
};

// All that was generated for one prompt: a whole delta for each choice, in order.
struct PromptAnswer {
  std::vector<ChoiceDelta> choices;
  std::vector<TokenScore> prompt_scores;
};

// One answer. Not thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The body of an answer that is not streamed.
  virtual std::string whole(const std::vector<PromptAnswer>& answers, const Usage& usage) = 0;
  // Appends the events for what choice `delta.index` of a prompt gained; possibly none. `prompt_scores` as in
  // Generation; `usage` is what was used so far.
  virtual void stream(size_t prompt, const ChoiceDelta& delta, const std::vector<TokenScore>& prompt_scores,
                      const Usage& usage, std::string& out) = 0;
  // Appends the last chunk of stream_options.include_usage.
  virtual void stream_usage(const Usage& usage, std::string& out) = 0;
  // Appends what ends the stream.
  virtual void stream_end(std::string& out);
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context);
std::unique_ptr<AnswerWriter> make_completion_writer(AnswerContext context);
std::unique_ptr<AnswerWriter> make_infill_writer(AnswerContext context);

// The answer, or in a stream the part of it that cannot be written bit by bit: about how many bytes. Known from the
// request and the lengths of its prompts and of what may be generated for them, so that nothing is generated in vain.
struct AnswerSize {
  uint64_t bytes = 0;
  uint64_t fixed = 0;                // of those, what does not depend on how much is generated
  const char* param = "max_tokens";  // what most of it comes from
};
AnswerSize estimate_answer(const AnswerContext& context, const GenerationRequest& generation, bool chat,
                           std::span<const int64_t> new_tokens);

// Pieces that both writers share.
nlohmann::ordered_json answer_head(const AnswerContext& context, const char* object);
nlohmann::ordered_json usage_json(const Usage& usage);
nlohmann::ordered_json finish_json(FinishReason reason);
nlohmann::ordered_json stop_reason_json(const ChoiceDelta& delta);
std::string dump(const nlohmann::ordered_json& json);  // one line; never throws for broken UTF-8
// `head` with "choices" and then the members of `tail`. Choices are texts already: a tree of all of them would be many
// times their size.
std::string whole_answer(const nlohmann::ordered_json& head, const std::vector<std::string>& choices,
                         const nlohmann::ordered_json& tail);
void append_choice_event(const AnswerContext& context, const nlohmann::ordered_json& head,
                         nlohmann::ordered_json choice, const Usage& usage, std::string& out);
void append_usage_event(const nlohmann::ordered_json& head, const Usage& usage, std::string& out);

}  // namespace ingot::server::openai
