#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "ingot/llm.h"
#include "server/openai/chat_reading.h"
#include "server/openai/errors.h"
#include "server/openai/logprobs.h"
#include "server/openai/request.h"

// Answers as JSON, whole or bit by bit: what the writers of all APIs have in common, and those of the two completions
// endpoints.
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
  int64_t draft_tokens = 0, accepted_tokens = 0;  // guessed, and of those drawn; once it is done
  double prefill_s = 0, decode_s = 0;             // once it is done; the longest of several prompts
};

// How much of a prompt was read, as llama-server tells it (return_progress).
struct PromptProgress {
  int64_t total = 0;
  int64_t cache = 0;      // of those, found in the prefix cache
  int64_t processed = 0;  // read so far, with those
  int64_t time_ms = 0;    // since its first step
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
  std::string request_id = {};
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
  // Appends the event of a prompt that was read further, where the answer's kind has one.
  virtual void stream_progress(size_t /*prompt*/, const PromptProgress&, std::string& /*out*/) {}
  // Appends what comes behind the last of them.
  virtual void stream_end(const Usage& usage, std::string& out) = 0;
  // Appends what tells that nothing more comes because something failed.
  virtual void stream_error(const ErrorReply& error, std::string& out) = 0;
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerContext context);
std::unique_ptr<AnswerWriter> make_completion_writer(AnswerContext context);
std::unique_ptr<AnswerWriter> make_infill_writer(AnswerContext context);

// A stream of the completions endpoints: chunks with one choice each, one with the usage if asked for, [DONE].
class ChunkWriter : public AnswerWriter {
 public:
  void stream_end(const Usage& usage, std::string& out) override;
  void stream_error(const ErrorReply& error, std::string& out) override;

 protected:
  ChunkWriter(AnswerContext context, const char* chunk_object);
  ~ChunkWriter() override;
  void append_choice(nlohmann::ordered_json choice, const Usage& usage, std::string& out) const;
  void append_progress(nlohmann::ordered_json choice, const PromptProgress& progress, std::string& out) const;

  const AnswerContext context_;

 private:
  const std::unique_ptr<const nlohmann::ordered_json> head_;  // of each chunk
};

// The answer, or in a stream the part of it that cannot be written bit by bit: about how many bytes. Known from the
// request and the lengths of its prompts and of what may be generated for them, so that nothing is generated in vain.
struct AnswerSize {
  uint64_t bytes = 0;
  uint64_t fixed = 0;                // of those, what does not depend on how much is generated
  const char* param = "max_tokens";  // what most of it comes from
};
AnswerSize estimate_answer(const AnswerContext& context, const GenerationRequest& generation, bool chat,
                           std::span<const int64_t> new_tokens);

// Pieces that writers share.
nlohmann::ordered_json answer_head(const AnswerContext& context, const char* object);
nlohmann::ordered_json usage_json(const Usage& usage);
nlohmann::ordered_json finish_json(FinishReason reason);
nlohmann::ordered_json stop_reason_json(const ChoiceDelta& delta);
std::string dump(const nlohmann::ordered_json& json);  // one line; never throws for broken UTF-8
// `head` with "choices" and then the members of `tail`. Choices are texts already: a tree of all of them would be many
// times their size.
std::string whole_answer(const nlohmann::ordered_json& head, const std::vector<std::string>& choices,
                         const nlohmann::ordered_json& tail);

}  // namespace ingot::server::openai
