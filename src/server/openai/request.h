#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ingot/llm.h"

// What a client asked for, read out of its JSON and checked as far as that goes without tokenizing.
namespace ingot::server::openai {

// What the checks need to know about the model and the server.
struct RequestLimits {
  int64_t vocab = 0;
  int32_t max_logprobs = 20;  // alternatives a token
  int32_t max_choices = 128;  // prompts times choices, best_of included
  int32_t max_n = 128;        // choices of one prompt
  int32_t max_beams = 16;     // likewise, with beam search
  size_t max_prompts = 256;   // of one completions request
  size_t max_stop = 64;       // stop strings; likewise the other lists of strings
};

// How the answer is written.
struct OutputOptions {
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // the usage so far in every chunk
  bool echo = false;              // the prompt (chat: the last message) comes back in front of the answer
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  bool token_ids = false;      // return_token_ids
  bool tokens_as_ids = false;  // tokens in logprobs are written "token_id:123"
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct ModelRequest {
  std::string model;  // empty: not given
};

// A conversation, as /v1/chat/completions and /tokenize take it.
struct ChatInput {
  std::shared_ptr<const nlohmann::ordered_json> messages;
  std::shared_ptr<const nlohmann::ordered_json> template_variables;  // chat_template_kwargs; may be null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;

  std::string last_role() const;
  std::string last_text() const;  // of the last message; text parts joined
};

// A request of either completions endpoint. `generation` lacks what comes later: id, prompt, deadline.
struct CompletionRequest : ModelRequest {
  OutputOptions output;
  GenerationRequest generation;
  std::optional<int64_t> max_tokens;       // absent: the endpoint's default
  std::optional<int64_t> truncate_prompt;  // keep this many tokens of the prompt's end
  std::optional<ChatInput> chat;           // either this
  std::vector<Prompt> prompts;             // or these
  bool add_special_tokens = true;          // to text prompts
};

struct TokenizeRequest : ModelRequest {
  std::optional<ChatInput> chat;
  std::string prompt;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest : ModelRequest {
  std::vector<int32_t> tokens;
};

// All throw ApiError. A name that is neither supported nor known to be harmless is refused (parameters.h).
CompletionRequest parse_chat_request(std::string_view body, const RequestLimits& limits);
CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits);
TokenizeRequest parse_tokenize_request(std::string_view body, const RequestLimits& limits);
DetokenizeRequest parse_detokenize_request(std::string_view body, const RequestLimits& limits);

}  // namespace ingot::server::openai
