#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "ingot/llm.h"

// Log probabilities in the shapes of the two completions endpoints and of vLLM's prompt_logprobs.
namespace ingot {
class Detokenizer;
class Tokenizer;
}  // namespace ingot

namespace ingot::server::openai {

size_t count_characters(std::string_view utf8);

// How tokens are named in logprobs.
struct TokenNames {
  const Tokenizer* tokenizer = nullptr;  // null: "token_id:123" for all
  bool as_ids = false;                   // likewise

  // The token's text; a part of a character is written "bytes:\xe2\x96", so that different tokens have different names.
  std::string name(int32_t token) const;
  // The token's text with U+FFFD for broken characters.
  std::string text(int32_t token) const;
  nlohmann::ordered_json bytes(int32_t token) const;  // a list of numbers; null without a tokenizer
};

// Logprobs of chat completions: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
nlohmann::ordered_json chat_logprobs(const TokenNames& names, std::span<const TokenScore> scores, int32_t top);

// vLLM's prompt_logprobs: one entry a prompt token, null for the first.
nlohmann::ordered_json prompt_logprobs(const TokenNames& names, std::span<const TokenScore> scores);

// Logprobs of completions, for one choice: {"text_offset", "token_logprobs", "tokens", "top_logprobs"}. Offsets are
// characters of the choice's text, so they go on from call to call.
class TextLogprobs {
 public:
  TextLogprobs(TokenNames names, bool skip_special, int32_t top);
  ~TextLogprobs();

  // The prompt in front of the answer; the answer's offsets start after `text`.
  void add_prompt(std::span<const TokenScore> scores, std::string_view text);
  void add(std::span<const TokenScore> scores);
  nlohmann::ordered_json take();  // what was added since the last call

 private:
  struct Lists;
  void append(const TokenScore& score, size_t limit);

  TokenNames names_;
  bool skip_special_;
  int32_t top_;
  std::unique_ptr<Detokenizer> detokenizer_;
  size_t offset_ = 0;
  std::unique_ptr<Lists> lists_;
};

}  // namespace ingot::server::openai
