#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ingot/tokenizer.h"
#include "server/openai/answer.h"
#include "server/openai/api.h"
#include "server/openai/request.h"
#include "text/chat_format.h"

namespace ingot::server::openai {

// The model behind the API, with what is worked out once. Immutable.
class ServedModel {
 public:
  ServedModel(std::shared_ptr<Generator> generator, const ApiOptions& options);

  Generator& generator() const { return *generator_; }
  const std::string& name() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& fingerprint() const { return fingerprint_; }
  const RequestLimits& request_limits() const { return limits_; }
  int64_t context() const { return generator_->limits().max_model_len; }

  // The most bytes that a token stands for.
  uint64_t longest_token() const { return longest_token_; }

  // 404 when `name` is not served. An empty name is the model's own.
  void check_name(const std::string& name) const;
  const Tokenizer& tokenizer(const char* param) const;  // 400 naming `param` when there is none

  // A conversation as the model's template writes it; 400 when there is none, or it refuses.
  ChatFormat::Prompt render(const ChatInput& chat, const CancelFlag* cancelled) const;

  // What a text, or a conversation, is to the model. A text that cannot fit the context is refused before it is
  // tokenized, or, where its end will do (not `whole`), cut to what could fit. Both throw Error (cancelled) soon after
  // `cancelled` is set.
  std::vector<int32_t> encode(const ChatInput& chat, bool whole, const CancelFlag* cancelled,
                              bool* in_reasoning = nullptr) const;
  std::vector<int32_t> encode(const std::string& param, std::string_view text, bool add_special, bool whole,
                              const CancelFlag* cancelled) const;

  // The prompts of a request as the model gets them, cut as the request says. 400 when one does not fit the context.
  // `param` is where they came from.
  std::vector<PromptTokens> prompts(const CompletionRequest& request, const CancelFlag* cancelled,
                                    const std::string& param = "prompt") const;
  // 400 when a text, or so many tokens with those that are to follow, cannot fit the context.
  void check_bytes(const std::string& param, std::string_view text) const { within_bytes(param, text, true); }
  void check_length(size_t tokens, int64_t new_tokens, const char* param) const;
  // 400 when the model makes no embeddings.
  void check_pooling() const;
  // Whether documents are rated by asking the model.
  bool judges() const;
  // Tells a request that fills a gap where to end; 400 when the model cannot fill gaps.
  void end_infill(CompletionRequest& request) const;
  // How the answer to a conversation is taken apart, if it is; what it needs of the request is set there.
  std::optional<ChatReading> reading(CompletionRequest& request) const;
  // Holds the answer to its format, its tools and its thinking budget, where the request asks for that (hold_answer.h).
  void hold_answer(CompletionRequest& request, bool in_reasoning) const;
  // How many tokens of a prompt's beginning are no secret (ApiOptions::shared_prefixes).
  int64_t shared_tokens(std::span<const int32_t> prompt) const;
  // 400 when an answer of about so many bytes is more than a client may ask for; `param` makes it so long.
  void check_answer(const std::string& param, uint64_t bytes) const;
  // Turns bad_words into token ids, once for all prompts.
  void tokenize_bad_words(GenerationRequest& generation, const CancelFlag* cancelled) const;

 private:
  void add_shared(const std::string& text);
  std::vector<int32_t> encode_infill(const std::string& param, std::string_view prefix, const Infill& infill,
                                     const CancelFlag* cancelled) const;
  std::string_view within_bytes(const std::string& param, std::string_view text, bool whole) const;

  std::shared_ptr<Generator> generator_;
  std::vector<std::string> names_;
  std::string fingerprint_;
  RequestLimits limits_;
  uint64_t longest_token_ = 1;
  uint64_t most_prompt_bytes_ = 0;            // a longer text is more tokens than the context holds
  std::shared_ptr<const ChatFormat> format_;  // null: the model has no chat template
  bool special_marks_ = false;                // calls or reasoning are marked by special tokens
  std::optional<InfillFormat> infill_;        // of a model that fills gaps
  std::vector<std::vector<int32_t>> shared_;  // beginnings
};

}  // namespace ingot::server::openai
